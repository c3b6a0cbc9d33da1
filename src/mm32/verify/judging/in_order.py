"""What plain sums make of a model's data: its float64 run again, with every sum made by one fp32 accumulator, term after term.

Where terms are of one size, the error of such a sum grows like the root of its length, and the bounds have room for it. Where a
few large terms come first, each later one may be less than half a unit of the accumulator, and all of these are lost: an honest
kernel's error is then as large as the sum's length, and no random perturbation (rounding.py) shows it. Sums are made in several
ways, because one of them may be right by chance. Runs in the reference's process.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from .composites import by_parts
from .operator_mode import Mode, arguments, operator

STARTS = 3  # from the first term on, from the last one on, and from the middle on
# The same again with all terms changed by a few units in the last place: an accumulator rounds equal terms all the same way, and
# which way depends on their last bits, which an honest kernel may have otherwise.
SHIFTS = 2
WAYS = STARTS * SHIFTS
SHIFT = 1.3 * 2.0**-22
MOST_TERMS = 1 << 26  # the most terms of an operator's sums that are made on the host
BUDGET = 5.0  # seconds of a run after which it is given up
PIECE = 1 << 24  # terms at a time
AT_ONCE = 1 << 26  # a product of more terms is made by one rank-1 update for each of K
# The most multiply-adds of a product, and its largest K: a second or two.
MOST_UPDATES = {"cpu": 1 << 31, "cuda": 1 << 38}
LONGEST_PRODUCT = 1 << 18


class InOrder(Mode):
    """Makes sums in order, in one of WAYS. `sums`: how many operators make some; `left_out`: whether one was too long."""

    def __init__(self, way: int) -> None:
        super().__init__()
        self.start = way % STARTS
        self.shifted = 1 + SHIFT * (way // STARTS)
        self.left_out = False
        self.sums = 0
        self.begun = time.monotonic()

    def check_time(self) -> None:
        if time.monotonic() - self.begun > BUDGET:
            raise TooLong

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (out := by_parts(self, func, args, kwargs)) is not NotImplemented:
            return out
        make = SUMS.get(operator(func))
        if make is None or func._schema.is_mutable:
            return func(*args, **kwargs)
        given = arguments(func, args, kwargs)
        tensors = [value for value in given.values() if isinstance(value, Tensor)]
        if not all(t.dtype == torch.float64 for t in tensors) or given.get("dtype") not in (None, torch.float64):
            return func(*args, **kwargs)
        self.check_time()
        out = None
        with _disable_current_modes(), contextlib.suppress(RuntimeError, TypeError, ValueError, ZeroDivisionError):
            out = make(self, given)  # no sums in order for what is empty, sparse or has no axes
        if out is None:
            return func(*args, **kwargs)
        self.sums += 1
        return out

    def along(self, t: Tensor, dims: int | Sequence[int] | None, keepdim: bool) -> Tensor | None:
        """Return the sums of a tensor along these axes, all if there are none; None where they are too long."""
        axes = [dims] if isinstance(dims, int) else list(dims or range(t.dim()))
        axes = sorted({axis % t.dim() for axis in axes}) if t.dim() else []
        kept = [axis for axis in range(t.dim()) if axis not in axes]
        length = math.prod(t.shape[axis] for axis in axes)
        if t.numel() > MOST_TERMS or not length:
            self.left_out |= t.numel() > MOST_TERMS
            return None
        rows = t.permute([*kept, *axes]).reshape(-1, length)
        out = self.rows(rows).view([t.shape[axis] for axis in kept])
        for axis in axes if keepdim else ():
            out = out.unsqueeze(axis)
        return out

    def rows(self, t: Tensor) -> Tensor:
        """Return the sum of each row of a matrix."""
        length = t.shape[1]
        sums = []
        for piece in t.split(max(1, PIECE // length)):
            self.check_time()
            terms = (piece * self.shifted).float().cpu()
            if self.start == 1:
                terms = terms.flip(1)
            elif self.start == 2:
                terms = terms.roll(length // 2, 1)
            with np.errstate(all="ignore"):
                sums.append(torch.from_numpy(np.add.accumulate(terms.numpy(), axis=1)[:, -1].copy()))
        return torch.cat(sums).to(t.device, torch.float64) / self.shifted

    def product(self, a: Tensor, b: Tensor) -> Tensor | None:
        """Return the products of matrices (batch, M, K) and (batch, K, N); None where they are too long."""
        batch, m, k = a.shape
        n, terms = b.shape[2], a.numel() * b.shape[2]
        if not terms:
            return None
        if terms <= AT_ONCE:
            each = a.float().unsqueeze(2) * b.float().mT.unsqueeze(1)
            return self.rows(each.reshape(-1, k).double()).view(batch, m, n)
        if terms > MOST_UPDATES.get(a.device.type, 0) or k > LONGEST_PRODUCT:
            self.left_out = True
            return None
        left, right = (a * self.shifted).float().mT.contiguous(), b.float().contiguous()
        out = torch.zeros(batch, m, n, device=a.device)
        order = range(k - 1, -1, -1) if self.start == 1 else range(k)
        for i in order:
            if i % 64 == 0:
                self.check_time()
            i = (i + k - k // 2) % k if self.start == 2 else i
            out.addcmul_(left[:, i].unsqueeze(2), right[:, i].unsqueeze(1))
        return out.double() / self.shifted

    def variance(self, given: dict[str, Any]) -> tuple[Tensor, Tensor] | None:
        """Return variance and mean, by two passes."""
        t, dims = given["self"], given["dim"]
        if (total := self.along(t, dims, True)) is None:
            return None
        count = t.numel() // max(1, total.numel())
        mean = total / count
        apart = (t - mean).square()
        squares = self.along(apart, dims, bool(given["keepdim"]))
        if squares is None:
            return None
        correction = given.get("correction")
        correction = 1 if correction is None else correction
        return squares / max(0, count - correction), mean if given["keepdim"] else mean.view(squares.shape)


class TooLong(Exception):
    """The run takes longer than BUDGET."""


Given = dict[str, Any]


def _sum(mode: InOrder, given: Given) -> Tensor | None:
    return mode.along(given["self"], given.get("dim"), bool(given.get("keepdim")))


def _mean(mode: InOrder, given: Given) -> Tensor | None:
    total = _sum(mode, given)
    return None if total is None else total * (total.numel() / given["self"].numel())


def _norm(mode: InOrder, given: Given) -> Tensor | None:
    order = given.get("ord", given.get("p"))
    order = 2 if order is None else order
    if order not in (1, 2):
        return None
    t = given["self"]
    total = mode.along(t.square() if order == 2 else t.abs(), given.get("dim"), bool(given.get("keepdim")))
    return total if total is None or order == 1 else total.sqrt()


def _var_mean(mode: InOrder, given: Given) -> tuple[Tensor, Tensor] | None:
    return mode.variance(given) if "correction" in given else None


def _var(mode: InOrder, given: Given) -> Tensor | None:
    found = _var_mean(mode, given)
    return None if found is None else found[0]


def _std(mode: InOrder, given: Given) -> Tensor | None:
    found = _var(mode, given)
    return None if found is None else found.sqrt()


def _std_mean(mode: InOrder, given: Given) -> tuple[Tensor, Tensor] | None:
    found = _var_mean(mode, given)
    return None if found is None else (found[0].sqrt(), found[1])


def _cumsum(mode: InOrder, given: Given) -> Tensor | None:
    t, axis = given["self"], given["dim"]
    if not t.dim() or t.numel() > MOST_TERMS or mode.start:
        mode.left_out |= t.numel() > MOST_TERMS
        return None  # a scan has its order
    with np.errstate(all="ignore"):
        made = np.add.accumulate((t * mode.shifted).float().cpu().numpy(), axis=axis)
    return torch.from_numpy(made).to(t.device, torch.float64) / mode.shifted


def _product(mode: InOrder, given: Given) -> Tensor | None:
    """Return what mm, mv, dot and bmm do, and, with a sum, addmm, addmv and baddbmm."""
    *add, a, b = (value for value in given.values() if isinstance(value, Tensor))
    shape = [*a.shape[:-1], *(b.shape[-1:] if b.dim() > 1 else ())]
    left = a if a.dim() == 3 else a.reshape(1, -1, a.shape[-1])
    right = b if b.dim() == 3 else b.reshape(1, b.shape[0], -1)
    out = mode.product(left, right)
    if out is None:
        return None
    out = out.view(shape)
    if add and given.get("beta", 1) != 0:  # torch does not look at the addend where beta is 0
        return given.get("beta", 1) * add[0] + given.get("alpha", 1) * out
    return given.get("alpha", 1) * out


SUMS: dict[str, Callable[[InOrder, Given], Any]] = {
    "sum": _sum,
    "mean": _mean,
    "linalg_vector_norm": _norm,
    "norm": _norm,
    "var_mean": _var_mean,
    "var": _var,
    "std": _std,
    "std_mean": _std_mean,
    "cumsum": _cumsum,
    **dict.fromkeys(("mm", "mv", "dot", "bmm", "addmm", "addmv", "baddbmm"), _product),
}
