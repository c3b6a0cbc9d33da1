"""Cards, random products, and all plans for one product."""

from __future__ import annotations

import contextlib
import random

import torch

from mm32 import activations, gemm
from mm32.gemm import Gemm
from mm32.plan import H200, KERNELS, Card, Plan, Unplannable, plan
from mm32.plan.card import A100, B200
from mm32.plan.card import RTX_A2000 as SMALL

SOME = [H200, A100, SMALL, B200]


def plans(problem: Gemm, card: Card) -> list[Plan]:
    """Return a plan with each kernel that can compute the problem on the card."""
    made = []
    for kernel in KERNELS:
        with contextlib.suppress(Unplannable):
            made.append(plan(problem, card, kernel))
    return made


def random_gemm(rng: random.Random) -> Gemm:
    """Return a random problem in any storage, described from meta tensors: nothing is allocated."""

    def matrix(batch: list[int], rows: int, cols: int) -> torch.Tensor:
        kind = rng.randrange(6)
        kept = batch[rng.randrange(len(batch) + 1) :]
        base = torch.empty(*kept, rows, cols, device="meta")
        if kind == 0:
            base = torch.empty(*kept, cols, rows, device="meta").mT
        elif kind == 1:
            base = torch.empty(*kept, rows, cols + rng.randrange(1, 5), device="meta")[..., :cols]
        elif kind == 2:
            base = torch.empty(*kept, cols, rows + rng.randrange(1, 5), device="meta").mT[..., :rows, :]
        elif kind == 3:
            base = torch.empty(*kept, rows * 2, cols * 3, device="meta")[..., ::2, ::3]
        elif kind == 4:
            base = torch.empty(1, 1, device="meta").expand(*kept, rows, cols)
        return base

    def size() -> int:
        return rng.choice((0, 1, 2, 3, 7, 16, 31, 64, 100, 127, 128, 1000, 4096, 20000))

    m, n, k, batch = size(), size(), size(), [rng.randrange(1, 5) for _ in range(rng.randrange(3))]
    a, b = matrix(batch, m, k), matrix(batch, k, n)
    out = torch.empty(gemm.result_shape(a.shape, b.shape), device="meta")
    if rng.randrange(3) == 0:
        out = out.mT.contiguous().mT
    bias = torch.empty(n, device="meta") if rng.randrange(2) else None
    return gemm.describe(a, b, bias, out, rng.choice([None, *activations.names()]), "fp32")
