"""How far honest rounding may move an output on data whose sums have few terms, or are exact, in whatever order they are added.

The bound of a long sum leaves room for arithmetic of 17 bits: an fp32 sum of K terms in order is that far off itself. On some
data it is not. A sum with one term that is not zero has no error, a sum of small integers has none either, and what is left is
one rounding of each operator: there a kernel shows how many bits it computes with. `FewTerms` finds out from a model's float64
run on the data at hand how many additions round:

- a sum is exact in any order where all its terms are multiples of a power of two q, and their sizes add up to 2^24 q at most;
- any other sum is off by u times the sum of its terms' sizes for each addition at most (Higham, Accuracy and Stability of
  Numerical Algorithms, 2nd ed., section 4.2). An addition of a term that is smaller than u of that is off by the term at most:
  what is negligible does not count.

Not by the square root of their number: equal terms are all rounded the same way. For the same reason equal numbers are
perturbed alike here. Runs in the reference's process.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from .bounds import U32
from .rounding import PRODUCTS, SCANS, Rounding, sum_length

FULL = 2.0**24  # integers up to here are exact in fp32
NEGLIGIBLE = 2.0**-48  # of the largest entry of a product's operand
ULPS = 2.0  # of one operator: elementary functions of fp32 are right to about that
BUTTERFLY = 8  # additions on the way through a Fourier transform
POWERS = {"exp", "exp2"}
# Often computed as a difference of numbers around 1, such as tanh as 2 sigmoid(2x) - 1: right to a few u, not of a small result.
CANCELLING = {"tanh", "expm1", "elu", "celu", "selu", "log1p", "erf", "sinh", "atanh", "mish"}
PURE = {"sum", "nansum", "cumsum"}  # nothing but sums: one of a single term is exact
VARIANCES = {"var", "var_mean", "std", "std_mean"}
POOLS = ("avg_pool1d", "avg_pool2d", "avg_pool3d")


class FewTerms(Rounding):
    """A clean run finds which sums are exact (u is 0), runs `again` are perturbed. `additions`: how many of them round, at most
    over operators, of entries weighted by their size."""

    def __init__(self, u: float = 0.0, seed: int = 0, exact: list[Any] | None = None, device: Any = "cpu") -> None:
        super().__init__(u, seed, device=device)
        self.seed = seed
        self.exact: list[Any] = []  # of each operator that sums, which of its results are exact
        self._known = iter(exact or ())
        self.additions = 0.0

    def again(self, u: float, seed: int, device: torch.device | str) -> FewTerms:
        """The mode for a perturbed run of what this one has seen."""
        return FewTerms(u, seed, self.exact, device)

    def _seen(self, func: Any, args: Any, kwargs: Any, name: str, out: Any) -> None:
        length = sum_length(func, args, out)
        self._note(length)
        if length > 1:
            with _disable_current_modes():
                found = _exact(name, func, args, kwargs, out)
            self.exact.append(found)

    def _perturbed(self, func: Any, args: Any, kwargs: Any, name: str) -> Any:
        out = func(*args, **kwargs)
        length = sum_length(func, args, out)
        with _disable_current_modes():
            exact = next(self._known, None) if length > 1 else None
            results = _numbers(out)
            errors = [t.abs() * (ULPS * self.u) for t in results]
            if name.rstrip("_") in CANCELLING:
                errors = [error + ULPS * self.u for error in errors]
            if name in POWERS and len(results) == 1:
                errors = [torch.where(args[0] == 0, 0.0, errors[0])]  # the power 0 of anything is 1 everywhere
            if length > 1 and func._schema.is_mutable:
                self.additions = math.inf  # what was added up is overwritten
            elif length > 1 and results:
                for i, (size, additions) in enumerate(_sizes(name, func, args, kwargs, out, length)):
                    rest = 0.0 if name in PURE else errors[i]
                    errors[i] = rest + self._of_sum(size, additions, exact).reshape(results[i].shape)
            moved = iter([self._moved(t, error) for t, error in zip(results, errors, strict=True)])
            if func._schema.is_mutable:
                for t in results:
                    t.copy_(next(moved))
                return out
            return pytree.tree_map(lambda t: next(moved) if _is_number(t) else t, out)

    def _of_sum(self, size: Tensor, additions: Tensor, exact: Tensor | None) -> Tensor:
        if exact is not None:
            additions = torch.where(exact.reshape(additions.shape), 0.0, additions)
        weight = float(size.square().sum())
        if weight > 0 and math.isfinite(weight):
            self.additions = max(self.additions, math.sqrt(float((size * additions).square().sum()) / weight))
        return self.sum_u * size * additions

    def _moved(self, t: Tensor, error: Tensor) -> Tensor:
        if self.generator is not None and t.device != self.generator.device:
            return t  # a number that the host keeps beside a model on a card is exact
        if t.is_complex():
            parts = torch.view_as_real(t.resolve_conj())
            return torch.view_as_complex(parts + error[..., None] * _hashed(parts, self.seed))
        return torch.where(t.isfinite(), t + error * _hashed(t, self.seed), t)  # Inf, as of a mask, is exact


def _is_number(t: Any) -> bool:
    return isinstance(t, Tensor) and (t.is_floating_point() or t.is_complex())


def _numbers(out: Any) -> list[Tensor]:
    """What an operator returns that is rounded."""
    return [t for t in pytree.tree_leaves(out) if _is_number(t)]


def _hashed(t: Tensor, seed: int) -> Tensor:
    """Numbers from -1 to 1 that depend on the values alone, so that equal ones are perturbed alike."""
    bits = t.to(torch.float64, memory_format=torch.contiguous_format, copy=True).view(torch.int64).add_(seed)
    for factor in (-7046029254386353131, -4658895280553007687):
        bits.mul_(factor).bitwise_xor_(bits >> 31)
    return bits.double().mul_(2.0**-63)


def given(func: Any, args: Any, kwargs: Any, name: str, default: Any = None) -> Any:
    """An argument of an operator by its name."""
    if name in kwargs:
        return kwargs[name]
    for i, argument in enumerate(func._schema.arguments):
        if argument.name == name:
            return args[i] if i < len(args) else argument.default_value if argument.has_default_value() else default
    return default


def _dims(func: Any, args: Any, kwargs: Any) -> list[int]:
    dims = given(func, args, kwargs, "dim")
    dims = list(range(args[0].dim())) if dims is None or dims == [] else [dims] if isinstance(dims, int) else list(dims)
    return [d % max(args[0].dim(), 1) for d in dims]


def _lines(t: Tensor, dims: list[int]) -> tuple[Tensor, Tensor]:
    """Of sums over some axes: the sizes of the terms added up, and how many of their additions round."""
    sizes = t.abs()
    if not dims or not t.dim():
        return sizes, torch.zeros_like(sizes)
    total = sizes.sum(dims, keepdim=True)
    counted = (sizes / (U32 * total)).clamp_(max=1.0).nan_to_num_(nan=0.0).sum(dims, keepdim=True)
    return total, (counted - 1).clamp_min_(0.0)


def _multiples(t: Tensor, total: Tensor, dims: list[int]) -> Tensor:
    """Of sums over some axes, whose terms' sizes add up to `total`: whether they are exact in any order."""
    unit = torch.exp2(torch.ceil(torch.log2(total / FULL)))
    steps = t / unit
    whole = ((steps == steps.round()) | (total == 0)).to(torch.uint8)
    return (whole.amin(dims, keepdim=True) if dims and t.dim() else whole) == 1


def _lowest(t: Tensor) -> float:
    """The largest power of two that all entries are multiples of; infinite if they are zeros."""
    nonzero = t[t != 0].double()
    if not nonzero.numel():
        return math.inf
    mantissa, exponent = torch.frexp(nonzero)
    whole = (mantissa * 2.0**53).to(torch.int64)
    return float(torch.ldexp((whole & -whole).double(), exponent - 53).min())


def _terms(name: str, func: Any, args: Any, kwargs: Any) -> tuple[list[Tensor], list[int]] | None:
    """The terms of an operator that sums over axes (of a variance several kinds, as one pass or two have them), and the axes."""
    x = args[0]
    if name in ("sum", "mean", "nansum"):
        return [x], _dims(func, args, kwargs)
    if name in VARIANCES:
        dims = _dims(func, args, kwargs)
        return [x, (x - x.mean(dims, keepdim=True)).square(), x.square()], dims
    if name in ("linalg_vector_norm", "norm") and given(
        func, args, kwargs, "ord", given(func, args, kwargs, "p", 2)
    ) in (
        2,
        None,
    ):
        return [x.square()], _dims(func, args, kwargs)
    if name in SCANS - {"cumprod", "logcumsumexp"}:
        return [x], [args[1] % max(x.dim(), 1)]
    return None


def _exact(name: str, func: Any, args: Any, kwargs: Any, out: Any) -> Tensor | None:
    """Which results are exact in whatever order they are summed, as a tensor that lies on them; None: none."""
    if not args or not isinstance(args[0], Tensor) or not args[0].is_floating_point():
        return None
    found = _terms(name, func, args, kwargs)
    if found is not None:
        terms, dims = found
        sums = [_multiples(t, t.abs().sum(dims, keepdim=True) if t.dim() else t.abs(), dims) for t in terms]
        exact = torch.stack(sums).all(0)
        return exact.expand(args[0].shape) if name in SCANS else exact
    if name in PRODUCTS:
        left, right = (args[i] for i in PRODUCTS[name])
        unit = _lowest(left) * _lowest(right)
        if not math.isfinite(unit):
            return torch.ones_like(out, dtype=torch.bool)
        if float(left.abs().max()) * float(right.abs().max()) <= FULL * unit:
            return _product(func, args, kwargs, name, torch.abs) <= FULL * unit
    return None


def _product(func: Any, args: Any, kwargs: Any, name: str, change: Any) -> Tensor:
    """The operator's product of changed operands, without what it adds."""
    new = list(args)
    for i in PRODUCTS[name]:
        new[i] = change(args[i])
    return product(func, new, kwargs, name)


def product(func: Any, args: Any, kwargs: Any, name: str) -> Tensor:
    """The operator's product, without what it adds."""
    new = list(args)
    if "convolution" in name or name in ("linear", "mkldnn_linear"):
        if len(new) > 2:
            new[2] = None
    elif PRODUCTS[name] == (1, 2):
        new[0] = torch.zeros_like(args[0])
    result = func(*new, **kwargs)
    assert isinstance(result, Tensor)
    return result


def _counts(t: Tensor) -> Tensor:
    return (t.abs() > NEGLIGIBLE * t.abs().max()).to(t.dtype) if t.numel() else t


def _sizes(name: str, func: Any, args: Any, kwargs: Any, out: Any, length: int) -> list[tuple[Tensor, Tensor]]:
    """Of each result, the sizes of the terms that it is summed from, added up, and how many additions of them round."""
    results = _numbers(out)
    found = _terms(name, func, args, kwargs) if args and isinstance(args[0], Tensor) else None
    if found is not None and name in SCANS:
        nonzero = (args[0] != 0).to(args[0].dtype).cumsum(found[1][0])
        return [(args[0].abs().cumsum(found[1][0]), (nonzero - 1).clamp_min_(0.0))]
    if found is not None:
        lines = [_lines(t, found[1]) for t in found[0]]
        total, additions = lines[-1][0], torch.stack([n for _, n in lines]).amax(0)
        count = max(1, math.prod(args[0].shape[d] for d in found[1]) if args[0].dim() else 1)
        if name in ("sum", "nansum"):
            return lines
        if name in ("mean", "var", "var_mean"):
            return [(total / count, additions), (lines[0][0] / count, lines[0][1])][: len(results)]
        return [(t.abs().reshape(total.shape), additions / 2) for t in results[:1]]  # behind a square root
    if name in PRODUCTS:
        size = _product(func, args, kwargs, name, torch.abs)
        return [(size, _product(func, args, kwargs, name, _counts))]  # one for each product's own rounding
    if name in POOLS:
        size, counted = (func(change(args[0]), *args[1:], **kwargs) for change in (torch.abs, _counts))
        return [(size, (counted * length - 1).clamp_min_(0.0))]
    worst = float(BUTTERFLY if name.startswith("_fft") else length)
    return [(t.abs().double(), torch.full_like(t, worst, dtype=torch.float64)) for t in results]
