"""Types of the options that are names, for type checkers. A test compares them with the tables of the code."""

from __future__ import annotations

from typing import Literal

Activation = Literal["relu", "leaky_relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"]
"""The name of a fused activation (mm32/activations.py)."""
Precision = Literal["fp32", "bf16x6", "ieee", "tf32"]
"""The error that is allowed (docs/numerics.md)."""
Kernel = Literal["auto", "naive", "dot", "tiled", "simt", "mma", "direct", "tensorcore"]
"""A kernel by name, or "auto" (docs/kernels.md)."""
Layout = Literal["nn", "nt", "tn", "tt"]
"""How A and B are stored: n as multiplied, t transposed."""
Side = Literal["left", "right"]
"""The left or right operand of a product: A or B."""
Baseline = Literal["eager", "compile", "tf32"]
"""How `mm32 verify` runs the reference that it times (docs/batches.md)."""
