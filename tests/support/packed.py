"""What the tests of packed operands share."""

from __future__ import annotations

import torch

import mm32

SIDES = ["a", "b", "ab"]


def pack_sides(a: torch.Tensor, b: torch.Tensor, sides: str, **options: object) -> tuple:
    """Return the operands, with those named in `sides` packed."""
    return (
        mm32.pack(a, side="left", **options) if "a" in sides else a,
        mm32.pack(b, **options) if "b" in sides else b,
    )
