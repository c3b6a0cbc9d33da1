"""What the tests of the operators share: shapes, storage orders, a record of the products that were made."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SHAPES = {
    "matrices": ((3, 4), (4, 5)),
    "batch": ((2, 3, 4), (2, 4, 5)),
    "broadcast_a": ((3, 4), (2, 4, 5)),
    "broadcast_b": ((2, 6, 3, 4), (4, 5)),
    "crosswise": ((2, 1, 3, 4), (6, 4, 5)),
    "vectors": ((4,), (4,)),
    "vector_matrix": ((4,), (4, 5)),
    "matrix_vector": ((3, 4), (4,)),
    "vector_batch": ((4,), (2, 4, 5)),
    "batch_vector": ((2, 3, 4), (4,)),
    "row": ((1, 4), (4, 1)),
    "depth_zero": ((3, 0), (0, 4)),
    "empty": ((0, 4), (4, 5)),
}


def make(shape: tuple[int, ...], device: str = "cpu", **options: object) -> torch.Tensor:
    return torch.randn(shape, device=device, **options)


def columns(b: tuple[int, ...]) -> int:
    return b[-1] if len(b) > 1 else 1


def transposed(t: torch.Tensor) -> torch.Tensor:
    """The same values and shape, in the other storage order."""
    return t.mT.contiguous().mT if t.dim() > 1 else t


def assert_same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


class Products(TorchDispatchMode):
    """The shapes that mm32::matmul returns inside this context."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.mm32.matmul.default:
            self.shapes.append(tuple(result.shape))
        return result
