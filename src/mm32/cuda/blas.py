"""torch's own product, where the planner expects it to be faster than any kernel here: kernel "torch", chosen by "auto" alone."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from mm32.cuda import launch
from mm32.gemm import Matrix
from mm32.plan import Plan

# The kernels themselves, captured before anybody overrides them (mm32.enable does): called, they do not pass autocast.
_PRODUCTS = {
    rank: torch.library.get_kernel(f"aten::{name}.out", "CUDA").call_boxed
    for rank, name in ((2, "mm"), (3, "bmm"))
    if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}.out", "CUDA")
}

_ops = torch.ops.aten
_IN_PLACE: dict[str, Callable[[torch.Tensor], object]] = {
    "relu": torch.relu_,
    "leaky_relu": _ops.leaky_relu_.default,
    "gelu": lambda x: _ops.gelu.out(x, out=x),
    "gelu_tanh": lambda x: _ops.gelu.out(x, approximate="tanh", out=x),
    "silu": _ops.silu_.default,
    "tanh": torch.tanh_,
    "sigmoid": torch.sigmoid_,
}


def torch_precision() -> str:
    """The precision that the user asked torch's float32 products on CUDA to have: "tf32", or else "fp32"."""
    # What torch.backends.cuda.matmul.fp32_precision reads; that way takes 1 us longer, and every call pays it.
    return "tf32" if torch._C._get_fp32_precision_getter("cuda", "matmul") == "tf32" else "fp32"


def usable() -> bool:
    """Whether torch's float32 products on CUDA are fp32 multiply-adds now, and need not be deterministic, which cuBLAS promises
    with a setting of its own only: the user can ask torch for either at any time."""
    return torch_precision() == "fp32" and not torch._C._get_deterministic_algorithms()


class TorchRunner:
    """A plan of kernel "torch" for one device. `otherwise` makes what runs in its place while torch's products are not
    `usable`."""

    def __init__(self, plan: Plan, otherwise: Callable[[], launch.Runner]) -> None:
        self._plan = plan
        self._otherwise = functools.cache(otherwise)  # made when it is first wanted
        g = plan.gemm
        self._product = _PRODUCTS[2 + len(g.batch)]
        self._views = tuple(_view(g.batch, *each) for each in ((g.m, g.k, g.a), (g.k, g.n, g.b), (g.m, g.n, g.out)))

    @property
    def plan(self) -> Plan:
        """Of what runs now."""
        return self._plan if usable() else self._otherwise().plan

    def __call__(
        self, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor, *_: torch.Tensor | None
    ) -> None:
        """As launch.Runner's."""
        if not usable():
            return self._otherwise()(a, b, bias, out)
        a, b, c = (x.as_strided(*view, x.storage_offset()) for x, view in zip((a, b, out), self._views, strict=True))
        self._product(torch._C._dispatch_keys(a), a, b, out=c)
        if bias is not None:
            c.add_(bias)
        if self._plan.gemm.activation is not None:
            _IN_PLACE[self._plan.gemm.activation](c)
        return None


def _view(batch: tuple[int, ...], rows: int, cols: int, matrix: Matrix) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and strides, with strides for axes of one element that BLAS takes: a Matrix has 0 there."""
    row, col = matrix.row, matrix.col
    if rows == 1:
        row = cols if col <= 1 else 1
    if cols == 1:
        col = rows if row == 1 and rows > 1 else 1
    return (*batch, rows, cols), (*matrix.batch, row, col)
