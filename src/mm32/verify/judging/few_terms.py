"""How far honest rounding may move an output on data whose sums have few terms, or are exact, in whatever order they are added.

The bound of a long sum leaves room for arithmetic of 17 bits: an fp32 sum of K terms in order is that far off itself. On some
data it is not. A sum with one nonzero term has no error, and a sum of small integers has none either. What is left is one
rounding by each operator, so a kernel shows how many bits it computes with. `FewTerms` finds out from a model's float64 run on
the data at hand how many additions round:

- A sum is exact in any order if all its terms are multiples of a power of two q, and their sizes add up to at most 2^24 q.
- Any other sum is off by at most u times the sum of its terms' sizes for each addition (Higham, Accuracy and Stability of
  Numerical Algorithms, 2nd ed., section 4.2). An addition of a term that is smaller than u times that sum is off by at most the
  term, so negligible terms do not count.

The bound grows with the number of additions, not with the square root of that number, because equal terms are all rounded the
same way. For the same reason equal numbers are perturbed alike here. Runs in the reference's process.
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
NEGLIGIBLE = 2.0**-48  # entries below this part of the largest entry of a product's operand do not count
ULPS = 2.0  # the error of one operator, in u: elementary functions of fp32 are right to about that
BUTTERFLY = 8  # additions on the way through a Fourier transform
POWERS = {"exp", "exp2"}
# Functions that are often computed as a difference of numbers around 1, such as tanh as 2 sigmoid(2x) - 1. They are then right
# to a few u, but not to a few u of a small result.
CANCELLING = {"tanh", "expm1", "elu", "celu", "selu", "log1p", "erf", "sinh", "atanh", "mish"}
PURE = {"sum", "nansum", "cumsum"}  # operators that only sum: with a single term they are exact
VARIANCES = {"var", "var_mean", "std", "std_mean"}
POOLS = ("avg_pool1d", "avg_pool2d", "avg_pool3d")


class FewTerms(Rounding):
    """Perturbs sums by as much as sums of these very data may be off.

    A clean run, with u 0, finds which sums are exact; runs with the modes that `again` returns are perturbed. `additions`: how
    many additions of an operator's sums round, as a root mean square over entries weighted by their size; the most of all
    operators.
    """

    def __init__(self, u: float = 0.0, seed: int = 0, exact: list[Any] | None = None, device: Any = "cpu") -> None:
        super().__init__(u, seed, device=device)
        self.seed = seed
        self.exact: list[Any] = []  # for each operator that sums, which of its results are exact
        self._known = iter(exact or ())
        self.additions = 0.0

    def again(self, u: float, seed: int, device: torch.device | str) -> FewTerms:
        """Return the mode for a perturbed run of what this one has seen."""
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
    """Return the tensors that an operator returns whose entries are rounded."""
    return [t for t in pytree.tree_leaves(out) if _is_number(t)]


def _hashed(t: Tensor, seed: int) -> Tensor:
    """Return numbers from -1 to 1 that depend only on the values (and the seed), so that equal values are perturbed alike."""
    bits = t.to(torch.float64, memory_format=torch.contiguous_format, copy=True).view(torch.int64).add_(seed)
    for factor in (-7046029254386353131, -4658895280553007687):
        bits.mul_(factor).bitwise_xor_(bits >> 31)
    return bits.double().mul_(2.0**-63)


def given(func: Any, args: Any, kwargs: Any, name: str, default: Any = None) -> Any:
    """Return an argument of an operator by its name."""
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
    """Return for sums over some axes the sums of their terms' sizes, and how many of their additions round."""
    sizes = t.abs()
    if not dims or not t.dim():
        return sizes, torch.zeros_like(sizes)
    total = sizes.sum(dims, keepdim=True)
    counted = (sizes / (U32 * total)).clamp_(max=1.0).nan_to_num_(nan=0.0).sum(dims, keepdim=True)
    return total, (counted - 1).clamp_min_(0.0)


def _multiples(t: Tensor, total: Tensor, dims: list[int]) -> Tensor:
    """Return whether sums over some axes, whose terms' sizes add up to `total`, are exact in any order."""
    unit = torch.exp2(torch.ceil(torch.log2(total / FULL)))
    steps = t / unit
    whole = ((steps == steps.round()) | (total == 0)).to(torch.uint8)
    return (whole.amin(dims, keepdim=True) if dims and t.dim() else whole) == 1


def _lowest(t: Tensor) -> float:
    """Return the largest power of two that all entries are multiples of; infinity if all are zeros."""
    nonzero = t[t != 0].double()
    if not nonzero.numel():
        return math.inf
    mantissa, exponent = torch.frexp(nonzero)
    whole = (mantissa * 2.0**53).to(torch.int64)
    return float(torch.ldexp((whole & -whole).double(), exponent - 53).min())


def _terms(name: str, func: Any, args: Any, kwargs: Any) -> tuple[list[Tensor], list[int]] | None:
    """Return the terms of an operator that sums over axes, and the axes; None of another operator.

    A variance has several kinds of terms, for computing it in one pass or in two.
    """
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
    """Return which results are exact in whatever order they are summed, as a mask that broadcasts to them; None if none are."""
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
    """Return the operator's product of its operands, each changed by `change`, without the term that it adds."""
    new = list(args)
    for i in PRODUCTS[name]:
        new[i] = change(args[i])
    return product(func, new, kwargs, name)


def product(func: Any, args: Any, kwargs: Any, name: str) -> Tensor:
    """Return the operator's product, without the term that it adds."""
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
    """Return for each result the sum of its terms' sizes, and how many of their additions round."""
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
        return [(t.abs().reshape(total.shape), additions / 2) for t in results[:1]]  # halved by the square root
    if name in PRODUCTS:
        size = _product(func, args, kwargs, name, torch.abs)
        # The number of terms is one more than that of additions: it counts the products' own rounding, too.
        return [(size, _product(func, args, kwargs, name, _counts))]
    if name in POOLS:
        size, counted = (func(change(args[0]), *args[1:], **kwargs) for change in (torch.abs, _counts))
        return [(size, (counted * length - 1).clamp_min_(0.0))]
    worst = float(BUTTERFLY if name.startswith("_fft") else length)
    return [(t.abs().double(), torch.full_like(t, worst, dtype=torch.float64)) for t in results]
