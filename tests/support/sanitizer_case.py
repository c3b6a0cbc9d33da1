"""Runs one kernel on small awkward problems; test_sanitizer.py starts it under compute-sanitizer.

    python tests/support/sanitizer_case.py KERNEL

Exits with 1 if a result is wrong, so that a sanitizer that changes the results is noticed. Torch itself only copies between host
and device: whatever a sanitizer finds is mm32's.
"""

from __future__ import annotations

import itertools
import math
import sys
from dataclasses import replace

import torch

import mm32
from mm32 import plan as planning
from mm32.cuda import launch

SIZES = [(1, 1, 1), (3, 2, 5), (17, 33, 9), (33, 31, 65), (64, 64, 64), (65, 129, 18), (7, 70, 0), (40, 70, 1100)]


PIECE = 4  # elements that memcheck counts for a cp.async, even where it is told to read fewer of them


def on_card(values: torch.Tensor, transposed: bool = False, offset: int = 0, pad: int = 0) -> torch.Tensor:
    """Return a copy in a memory block of its own, its matrix stored transposed or not, `offset` elements after the block's start,
    with `pad` elements between rows. The rest of the block is NaN, so that any use of it shows in the result.

    The block ends with the PIECE that contains the last element; a read past it is out of bounds. It does not end with the
    element itself: a cp.async that is told to read 8 of 16 bytes reads 8, and memcheck reports 16."""
    stored = values.mT if transposed else values
    strides, reach = [0] * stored.dim(), 1
    for d in reversed(range(stored.dim())):
        strides[d] = reach
        reach = reach * max(stored.shape[d], 1) + (pad if d == stored.dim() - 1 else 0)
    span = 1 + sum((n - 1) * s for n, s in zip(stored.shape, strides, strict=True)) if stored.numel() else 0
    host = torch.full((-(-(offset + span) // PIECE) * PIECE,), math.nan)
    host.as_strided(stored.shape, strides, offset).copy_(stored)
    view = host.to("cuda").as_strided(stored.shape, strides, offset)
    return view.mT if transposed else view


def check(
    kernel: str, what: str, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, **storage: object
) -> bool:
    for transposed_a, transposed_b in itertools.product((False, True), repeat=2):
        x, y = on_card(a, transposed_a, **storage), on_card(b, transposed_b, **storage)
        placed_bias = None if bias is None else on_card(bias, offset=storage.get("offset", 0))
        try:
            result = mm32.matmul(x, y, bias=placed_bias, activation="gelu" if bias is not None else None, kernel=kernel)
        except planning.Unplannable as error:
            print(f"{what}: not run, {error}")
            continue
        expected = mm32.matmul(a.double(), b.double(), bias=None if bias is None else bias.double())
        expected = torch.nn.functional.gelu(expected) if bias is not None else expected
        error = (result.cpu().double() - expected).abs()
        if not (error <= 1e-4 * max(1.0, a.shape[-1] / 256)).all():
            print(f"{what}: wrong by {error.max().item()}, layout {'nt'[transposed_a]}{'nt'[transposed_b]}, {storage}")
            return False
    return True


def forget_plans() -> None:
    planning.cost.of.cache_clear()
    mm32.prepared.CACHE.clear()


def main(kernel: str) -> int:
    torch.manual_seed(0)
    right = True
    for m, n, k in SIZES:
        a, b, bias = torch.randn(m, k), torch.randn(k, n), torch.randn(n)
        for storage in ({}, {"offset": 1}, {"pad": 3, "offset": 2}):
            right &= check(kernel, f"M={m} N={n} K={k}", a, b, bias if m % 2 else None, **storage)
    a, b = torch.randn(2, 3, 17, 20), torch.randn(3, 20, 33)
    right &= check(kernel, "batch", a, b, torch.randn(33))
    right &= check(kernel, "batch", a, b, None, offset=3)
    # The large tiles of a kernel that has several, at their edges; a grid of few blocks, so that each takes several tiles.
    if kernel == "simt":
        shares = planning.cost.SHARES
        tiles, card_of, card = planning.fma.SIMT_TILES, launch.card_of, launch.card_of(0)
        for tile in tiles:
            planning.fma.SIMT_TILES = (replace(tile, aligned=False),)
            forget_plans()
            a, b = torch.randn(tile.m + 1, 3 * tile.k + 1), torch.randn(3 * tile.k + 1, tile.n + 2)
            right &= check(kernel, f"tile {tile.m}x{tile.n}", a, b, None)
            right &= check(kernel, f"tile {tile.m}x{tile.n}", a, b, None, offset=1)
            shares["reduce.launches"] = -1e6
            forget_plans()
            right &= check(kernel, f"tile {tile.m}x{tile.n}, K split", a, b, torch.randn(tile.n + 2))
            # K is not split, but the blocks share the last of 20 tiles
            shares["reduce.launches"], shares["fixup.launches"] = 1e6, -1e6
            launch.card_of = lambda index: replace(card, sms=3)
            forget_plans()
            a, b = torch.randn(9 * tile.m + 1, 3 * tile.k + 1), torch.randn(3 * tile.k + 1, tile.n + 2)
            right &= check(kernel, f"tile {tile.m}x{tile.n}, stream-K", a, b, torch.randn(tile.n + 2))
            launch.card_of, shares["fixup.launches"] = card_of, 1e6
        planning.fma.SIMT_TILES = tiles
        # Narrow products, with K split wherever it can be, then nowhere.
        for shares["reduce.launches"] in (-1e6, 1e6):
            forget_plans()
            for form in planning.fma.NARROW_FORMS:
                rows, k = form.tile + 4, 2 * form.piece + 4
                for m, n in ((rows, form.width), (form.width, rows)):
                    a, b, what = torch.randn(m, k), torch.randn(k, n), f"narrow, M={m} N={n} K={k}"
                    right &= check(kernel, what, a, b, torch.randn(n))
                    right &= check(kernel, what, a, b, None, offset=1, pad=3)
        forget_plans()
    planning.card.MAX_GRID = 2
    forget_plans()
    right &= check(kernel, "a grid of 2 blocks", torch.randn(70, 33), torch.randn(33, 140), None)
    torch.cuda.synchronize()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
