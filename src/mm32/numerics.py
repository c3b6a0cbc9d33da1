"""A model of the tensor-core kernel's arithmetic in numpy, and the gauges that errors are measured with. No torch, no card.

The scheme: a row of A (a column of B) is scaled by a power of two and kept as two fp16 numbers, x = hi + lo; the three
products lo*hi, hi*lo and hi*hi are summed by tensor cores; their sums are promoted, added to fp32 registers, every 64 of K;
the scale is undone at the end. Inputs that fp16's range does not suit are detected while they are split, and the product is
then computed by fp32 multiply-adds. `docs/numerics.md` has the argument; the kernels are pack.cu, tensorcore.cu, reduce.cu.

Sources. Splitting fp32 into fp16 pairs for tensor cores: Markidis, Der Chien, Laure, Peng, Vetter, "NVIDIA Tensor Core
programmability, performance & precision", IPDPSW 2018. Keeping the sums out of the tensor core's truncating accumulator: Ootomo
and Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance",
IJHPCA 36(4), 2022. How tensor cores add: Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ
Computer Science 7:e330, 2021; for Hopper, Khattak and Mikaitis, "Accurate models of NVIDIA tensor cores", arXiv:2512.07004.

Arrays are float32; an operand is given by rows along K: A is (M, K), B (K, N) enters `pack` as B.T. Scaled numbers and errors
have no unit but u = 2^-24, the unit roundoff of fp32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Double = NDArray[np.float64]
Integer = NDArray[np.int64]

UNIT = 2.0**-24
BLOCK_K, CHUNK, SAMPLES, TARGET, TARGET_EXACT, LIMIT = 64, 8, 64, 10, 14, 65504.0  # as in split.cuh
SMALL = {3: 2.0**-3, 1: 2.0**-14}  # by number of products
KEPT_BITS = 25  # fraction bits that Hopper keeps of what it adds
_PRODUCTS = {"fp32": 3, "tf32": 1}
