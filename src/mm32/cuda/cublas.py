"""torch's own product on CUDA: kernel "torch", for when the planner expects it to be the fastest, or no kernel of mm32 runs."""

from __future__ import annotations

from collections.abc import Callable

import torch

from mm32 import activations, torch_product
from mm32.gemm import Matrix
from mm32.plan import Plan

taken_over = False  # whether mm32.enable has taken over torch's own products: torch.matmul would come back to mm32

_precision, _deterministic = torch._C._get_fp32_precision_getter, torch._C._get_deterministic_algorithms

# The kernels themselves, captured before anybody overrides them (mm32.enable does). A call of one does not go through autocast.


def _kernels(overload: str) -> dict[int, Callable[..., torch.Tensor]]:
    """Return torch's kernels by the number of the operands' dimensions."""
    return {
        rank: torch.library.get_kernel(f"aten::{name}{overload}", "CUDA").call_boxed
        for rank, name in ((2, "mm"), (3, "bmm"))
        if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}{overload}", "CUDA")
    }


_PRODUCTS, _NEW = _kernels(".out"), _kernels("")  # those that fill an existing tensor, and those that make a new one


def offered() -> str | None:
    """Return the precision of torch's float32 products if they may stand in for mm32's: "fp32", or None.

    The user can ask torch at any time for TF32, which is less than mm32 promises, or for determinism, which cuBLAS promises only
    with a setting of its own.
    """
    return "fp32" if _precision("cuda", "matmul") != "tf32" and not _deterministic() else None


class TorchProduct:
    """A plan of kernel "torch", made ready. It is called like `launch.Executable`.

    A plan that was compared with mm32's kernels, and so has estimates, has operands and a result with a layout that cuBLAS takes,
    and torch's products are fp32: cuBLAS is called with them directly. Any other plan is computed as on the CPU, whatever
    precision torch was asked for, for any strides and batch dimensions, and is copied to the result.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        g = plan.gemm
        self._as_it_lies = plan.estimates != ()
        if not self._as_it_lies:
            return
        self._product = _PRODUCTS[2 + len(g.batch)]
        self._activation = None if g.activation is None else activations.named(g.activation)
        self._views = tuple(_view(g.batch, *each) for each in ((g.m, g.k, g.a), (g.k, g.n, g.b), (g.m, g.n, g.out)))

    def __call__(
        self, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor, *_: torch.Tensor | None
    ) -> None:
        if not self._as_it_lies:
            out.copy_(torch_product.matmul(a, b, bias, self.plan.gemm.activation, self.plan.gemm.precision))
            return
        a, b, c = (_seen_as(x, *view) for x, view in zip((a, b, out), self._views, strict=True))
        self._product(torch._C._dispatch_keys(a), a, b, out=c)
        if bias is not None:
            c.add_(bias)
        if self._activation is not None:
            self._activation.in_place(c, **self._activation.options)

    def anew(
        self, a: torch.Tensor, b: torch.Tensor, shape: tuple[int, ...], transposed: bool
    ) -> Callable[..., torch.Tensor] | None:
        """Return a function of a, b and bias that makes the result, of this shape, by torch's own operator; None if that would
        use another kernel than the plan's. It is for tensors with the layout of these, for which the dispatcher has nothing more
        to do (`dispatch.guard`). transposed: b is the transposed second operand."""
        second = b.mT if transposed and b.dim() > 1 else b
        if not self._as_it_lies:
            return None
        (size, stride), right, (new, _) = self._views
        if not _lies(second, *right) or a.dim() < len(size) or not (a.dim() == len(size) or a.is_contiguous()):
            return None
        folds = a.dim() != len(size)
        if not _lies(a.view(size) if folds else a, size, stride):
            return None
        multiply, keys, activation = _NEW[len(size)], torch._C._dispatch_keys(a), self._activation
        by_torch = torch.nn.functional.linear if transposed else torch.matmul

        def product(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
            if taken_over:
                c = multiply(keys, a.view(size) if folds else a, b.mT if transposed else b)
                c = c if shape == new else c.view(shape)
            else:  # the same kernel: what torch.matmul does before it takes less time than making views here
                c = by_torch(a, b)
            if bias is not None:
                c.add_(bias)
            if activation is not None:
                activation.in_place(c, **activation.options)
            return c

        return product


def _lies(x: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    return x.shape == size and x.stride() == stride


def _seen_as(x: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    return x if _lies(x, size, stride) else x.as_strided(size, stride, x.storage_offset())


def _view(batch: tuple[int, ...], rows: int, cols: int, matrix: Matrix) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return sizes and strides of a matrix. A `Matrix` has stride 0 for an axis of one element; here the stride is one that BLAS
    takes."""
    row, col = matrix.row, matrix.col
    if rows == 1:
        row = cols if col <= 1 else 1
    if cols == 1:
        col = rows if row == 1 and rows > 1 else 1
    return (*batch, rows, cols), (*matrix.batch, row, col)
