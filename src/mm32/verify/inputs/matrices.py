"""Other matrices in place of symmetric and triangular ones, of the same structure. Runs in the reference's process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from .contents import CORNER, LOOKED_AT, changed, few, few_values, like, size_of, structure

MASK_VALUES = 3  # the most values of a matrix that says who has to do with whom, such as a mask or a graph
CONDITION = 6  # log2 of the condition number that positive definite matrices get


def of_numbers(values: Sequence[object]) -> dict[int, str]:
    """Return which inputs are matrices of numbers, neither masks, graphs nor distances, and of which structure: symmetric,
    lower or upper."""
    found = {}
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or not t.is_floating_point() or 0 < len(few_values(t) or ()) <= MASK_VALUES:
            continue
        of = structure(t)
        distances = of == "symmetric" and not bool(t.diagonal(dim1=-2, dim2=-1).any()) and bool((t >= 0).all())
        if of in ("symmetric", "triangular") and not distances:
            found[i] = "symmetric" if of == "symmetric" else "lower" if bool(t.tril(-1).any()) else "upper"
    return found


def again(kind: str, new: object) -> object:
    """Give a changed matrix back the structure that it had."""
    assert isinstance(new, Tensor)
    if kind == "symmetric":
        return like(new, new.tril() + new.tril(-1).mT)
    return like(new, new.tril() if kind == "lower" else new.triu())


def _square_matrices(values: Sequence[object]) -> Iterator[tuple[int, Tensor]]:
    """Yield the inputs that hold square matrices of floating point, neither tiny nor too large to be decomposed, with their
    indices."""
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or not t.is_floating_point() or t.dim() < 2 or t.shape[-1] != t.shape[-2]:
            continue
        if 3 <= t.shape[-1] <= CORNER and t.numel() <= LOOKED_AT:
            yield i, t


def _of_spectrum(vectors: Tensor, sizes: Tensor) -> Tensor:
    """Return the symmetric matrices with these eigenvectors and eigenvalues."""
    new = (vectors * sizes.unsqueeze(-2)) @ vectors.mT
    return (new + new.mT) / 2


def conditioned(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Give positive definite matrices a spectrum of another condition number, with their own eigenvectors."""
    out = list(values)
    for i, t in _square_matrices(values):
        wide = t.detach().double()
        if not torch.equal(t, t.mT) or bool(torch.linalg.cholesky_ex(wide).info.any()):
            continue
        sizes, vectors = torch.linalg.eigh(wide)
        spectrum = torch.logspace(-CONDITION, 0, t.shape[-1], base=2, dtype=torch.float64, device=t.device)
        out[i] = like(t, _of_spectrum(vectors, sizes[..., -1:] * spectrum))
    return changed(out, values)


def _structured(values: Sequence[object], change: Callable[[Tensor, str], Tensor], masks: bool = False) -> list[object]:
    """Replace symmetric and triangular matrices by what `change` makes of them in float64, given their structure. Matrices
    of few values are left alone, but for symmetric ones, such as graphs, with `masks`: triangular ones say who may see whom."""
    out = list(values)
    for i, t in _square_matrices(values):
        of = structure(t)
        is_mask = 0 < len(few_values(t) or ()) <= MASK_VALUES
        if of not in ("symmetric", "triangular") or (is_mask and not (masks and of == "symmetric")):
            continue
        if bool(t.isfinite().all()):
            out[i] = like(t, change(t.detach().double(), of))
    return changed(out, values)


def isolated(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Set some rows and columns of symmetric matrices to zero, and some rows of triangular ones. The diagonal stays if all
    of it is positive."""

    def change(t: Tensor, of: str) -> Tensor:
        chosen = few(t[..., 0], max(2, t.shape[-1] // 2), generator).unsqueeze(-1)
        gone = chosen | chosen.mT if of == "symmetric" else chosen.expand(t.shape)
        if bool((t.diagonal(dim1=-2, dim2=-1) > 0).all()):
            gone = gone & ~torch.eye(t.shape[-1], dtype=torch.bool, device=t.device)
        return t.masked_fill(gone, 0.0)

    return _structured(values, change, masks=True)


def indefinite(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Negate every second eigenvalue of symmetric matrices, the largest among them, and every second row of triangular ones."""

    def change(t: Tensor, of: str) -> Tensor:
        signs = torch.where(torch.arange(t.shape[-1], device=t.device).flip(0) % 2 == 0, -1.0, 1.0).double()
        if of == "triangular":
            return t * signs.unsqueeze(-1)
        sizes, vectors = torch.linalg.eigh(t)
        return _of_spectrum(vectors, sizes * signs)

    return _structured(values, change)


def isotropic(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Turn a third of several symmetric or triangular matrices into multiples of the identity, or a single one."""

    def change(t: Tensor, of: str) -> Tensor:
        sizes = t.diagonal(dim1=-2, dim2=-1).abs().mean(-1)[..., None, None].clamp(min=size_of(t) / 16)
        new = sizes * torch.eye(t.shape[-1], dtype=t.dtype, device=t.device)
        several = t.dim() > 2 and t[..., 0, 0].numel() > 1
        return torch.where(few(t[..., 0, 0], 3, generator)[..., None, None], new, t) if several else new

    return _structured(values, change)
