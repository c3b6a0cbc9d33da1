"""Same or different: one output against its truth. Pure functions of tensors and numbers.

The rule (docs/verifying.md has the measurements behind it). With u the unit roundoff of the output's dtype, K the
number of terms that are summed, C64 the float64 truth, G the gauge of errors and the errors

    normwise       ||C - C64|| / ||C64||
    componentwise  max |C - C64| / (u G)

an output is the same as the reference's if it has NaN and Inf exactly where the reference has them and both errors are at most

    normwise       max(sqrt(K) / 2, 8) u max(1, ||G|| / (sqrt(K) ||C64||))
    componentwise  max(2 sqrt(K), 32)

or three times what a disturbed run has (rounding.py; normwise, of more than MANY entries, no more than OWN times the reference's
own error), or four times what the reference itself has, whichever is more. The reference's own
errors count up to CAP times the first two: beyond that it is not rounding that they show, and there is no verdict. For
a product with an
epilogue, G is |A||B| + |bias|, and no run is disturbed; else G is |C64| + rms(C64), without the last factor.
Where the reference rounds nothing at all (a maximum, a sort), they are u and 2.
In fp16 and bf16 the first two numbers are 2 u (and sqrt(K) / 2 of fp32, in which sums are kept) and 8.
Every comparison is written `not (error <= bound)`, so that NaN never passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .pieces import equal as all_equal
from .pieces import finite, over
from .text import one_line
from .wire import leaves

U32 = 2.0**-24
NOISE = 3.0  # how many times a disturbed run's errors are allowed
FLIPS = 4  # how many times as many integers may change as in a disturbed run, and how many times as far
ORDINAL = (
    8,
    1 / 64,
)  # of so many changed integers none moved by more than this part of their range: their sizes mean something
MOST_COLUMNS, LEAST_ROWS = 64, 256  # of an output whose columns are judged by themselves
COLUMN, OWN_COLUMN = (
    64.0,
    32.0,
)  # how many times the whole's bound, and the reference's own error there, a column may be off
SMALL = 2.0**-10, 1 / 256  # of small entries: the reference's relative error, and of how many in all
SMALLEST = 2.0**-100  # far above where fp32's bits become fewer
MANY, OWN = 1024, 64.0  # of more entries than these no more than so many times the reference's own error is rounding
CAP = 16.0  # how many times the errors that rounding explains the reference's own may count

ROUNDOFF = {
    torch.float64: 2.0**-53,
    torch.complex128: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.complex64: 2.0**-24,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
}


@dataclass
class Errors:
    """The two errors of the rule, or bounds of them."""

    normwise: float = 0.0
    componentwise: float = 0.0


@dataclass
class Truth:
    """What one output should be: the reference's own result, the float64 result, and the gauge of its errors.

    `noise` is how far honest rounding may lead (rounding.py), `working` the coarsest unit roundoff that the model computes in,
    `flips` how many integers such rounding changes, and `step` by how much at most. With `rows`, `exact` is of those
    entries of the first axis only.
    Without `exact` there is no float64 truth, and the reference's result is taken instead; without `gauge` the model is
    no contraction. With `either`, any number is as right as a NaN of the reference's. With `picked` its
    values are entries of its inputs, and nothing is rounded. `free`: where NaN and Inf of the inputs decide nothing, since any
    number in their place would give the same, and what that is. `extreme`: of data on which honest arithmetic of 22 bits loses
    small entries beside large ones, or on which the reference may be exact by chance. Two other rules take the place
    of the bounds: with `bitwise` every value must equal the reference's, with `relative`
    |C - reference| <= relative * max(|reference|, floor) must hold for every entry.
    """

    path: str
    reference: Any
    exact: Any = None
    gauge: Tensor | None = None
    k: int = 1
    bitwise: bool = False
    relative: float | None = None
    floor: float = 0.0
    noise: Errors | None = None
    working: float = 0.0
    flips: int = 0
    step: int = 0
    rows: Tensor | None = None
    either: bool = False
    picked: bool = False
    free: tuple[Tensor, Tensor] | None = None
    extreme: bool = False
    _own: tuple[Errors, Errors] | None = None
    _scale: float | None = None
    _finite: bool | None = None
    _whole: Truth | None = None

    def __post_init__(self) -> None:
        """All on the reference's device: what has twice its bytes may have come on the card where that came by the host."""
        if isinstance(self.reference, Tensor):
            if isinstance(self.exact, Tensor):
                self.exact = self.exact.to(self.reference.device)
            if self.gauge is not None:
                self.gauge = self.gauge.to(self.reference.device)

    def finite(self) -> bool:
        """Whether the reference's result is, everywhere."""
        if self._finite is None:
            self._finite = finite(self.reference)
        return self._finite

    @property
    def u(self) -> float:
        return ROUNDOFF.get(getattr(self.reference, "dtype", torch.float64), 0.0)

    def measure(self, got: Tensor) -> tuple[Errors, float, float]:
        """The errors of `got`, ||C64|| and ||gauge||, over the entries where the reference and the truth are finite."""
        exact = self.reference if self.exact is None else self.exact
        own, gauge = self.reference, self.gauge
        if self.rows is not None:
            own, got = _take(own, self.rows), _take(got, self.rows)
            gauge = None if gauge is None else _take(gauge, self.rows)
        if self._scale is None:
            self._scale = 0.0 if self.gauge is not None else _rms(exact)
        scale, u = self._scale, self.u
        sums = over(lambda c, r, x, g: _sums(c, r, x, g, scale, u), got, own, exact, gauge)
        difference, norm, gauge_norm = (math.fsum(one[i] for one in sums) for i in range(3))
        worst = 0.0
        for one in sums:
            worst = _max(worst, one[3])
        normwise = math.sqrt(difference / norm) if norm > 0 else (0.0 if difference == 0 else math.inf)
        errors = Errors(normwise if difference == difference else math.nan, worst)
        return errors, math.sqrt(norm), math.sqrt(gauge_norm)

    def unsliced(self) -> Truth:
        """The reference's own result as the truth of all entries, where the float64 truth is of some only."""
        if self._whole is None:
            self._whole = self.other(exact=None, rows=None)
        return self._whole

    @property
    def many(self) -> bool:
        """Whether there are so many entries that the reference's own errors say what rounding does."""
        return not self.extreme and isinstance(self.reference, Tensor) and self.reference.numel() > MANY

    def hold_to_bits(self) -> None:
        """Set `picked` where the reference's result is the float64 one to the last bit: a maximum, a sorted or moved entry.
        For data at random alone: of other data a sum of equal numbers may be exact as well."""
        if not isinstance(self.reference, Tensor) or self.u == 0 or self.exact is None or self.gauge is not None:
            return
        if isinstance(self.exact, Tensor) and self.exact.dtype == self.reference.dtype:
            return  # it was not computed in float64
        own = self.own()[0]
        self.picked = own.normwise == 0 and own.componentwise == 0
        self._own = None

    def forget(self) -> None:
        """Compute the bounds anew when they are asked for: `noise` has changed."""
        self._own = None

    def other(self, **fields: Any) -> Truth:
        """The same with other fields, of which nothing has been computed yet."""
        return replace(self, **fields, _own=None, _scale=None, _finite=None, _whole=None)

    def own(self) -> tuple[Errors, Errors]:
        """The reference's own errors, and the bounds that follow from them."""
        if self._own is None:
            errors, norm, gauge_norm = self.measure(self.reference)
            if self.picked:
                self._own = errors, Errors(self.u, 2.0)
                return self._own
            root = math.sqrt(max(self.k, 1))
            spread = max(1.0, gauge_norm / (root * norm)) if self.gauge is not None and norm > 0 else 1.0
            slack = 1.0 if self.exact is not None else 2.0
            u = max(self.u, self.working)
            least, entry = (2, 8) if u > U32 else (8, 32)
            normwise = slack * max(root / 2 * min(u, U32), least * u) * spread
            componentwise = slack * max(2 * root * min(u, U32), entry * u) / self.u
            if self.noise is not None:
                most = OWN * errors.normwise if self.many else math.inf
                normwise = max(normwise, min(NOISE * self.noise.normwise, most))
                componentwise = max(componentwise, NOISE * self.noise.componentwise)
            normwise = max(normwise, min(4 * errors.normwise, CAP * normwise))
            componentwise = max(componentwise, min(4 * errors.componentwise, CAP * componentwise))
            self._own = errors, Errors(normwise, componentwise)
        return self._own


def _take(t: Tensor, rows: Tensor) -> Tensor:
    return t.index_select(0, rows.to(t.device))


def _max(a: float, b: float) -> float:
    """The larger; NaN if `b` is NaN, which Python's max may drop."""
    return b if b != b or b > a else a


def _wide(t: Tensor) -> Tensor:
    return t.to(torch.complex128 if t.is_complex() else torch.float64)


def _sums(c: Tensor, r: Tensor, x: Tensor, g: Tensor | None, scale: float, u: float) -> tuple[float, ...]:
    """Of some entries: the squares of errors, truth and gauge, summed, and the largest error in u of the gauge."""
    x = _wide(x)
    d, size = torch.sub(_wide(c), x).abs(), x.abs()
    unit = _wide(g) if g is not None else size + scale
    sums = [_square(t) for t in (d, size, unit)]
    if not all(map(math.isfinite, sums)):
        # An entry is NaN, infinite or too large to square. Where NaN and Inf are is compared by _odd_values.
        ok = torch.isfinite(size) & torch.isfinite(r)
        d, size, unit = d[ok], size[ok], unit[ok]
        sums = [_square(t) for t in (d, size, unit)]
    worst = 0.0
    if d.numel():
        ratio = d / unit
        worst = float(ratio.max())
        if worst != worst:  # 0 / 0: a sum of zeros, and exact
            worst = float(torch.where(d == 0, 0.0, ratio).max())
    return *sums, worst / u


def _square(t: Tensor) -> float:
    return float(torch.linalg.vector_norm(t)) ** 2


def _rms(t: Tensor) -> float:
    """Root mean square of the finite entries."""

    def of(chunk: Tensor) -> tuple[float, int]:
        size = _wide(chunk).abs()
        total = _square(size)
        if not math.isfinite(total):
            size = size[torch.isfinite(size)]
            total = _square(size)
        return total, size.numel()

    sums = over(of, t)
    count = sum(n for _, n in sums)
    return math.sqrt(math.fsum(total for total, _ in sums) / count) if count else 0.0


@dataclass
class Judgement:
    """The outcome of comparing one output with its truth.

    `measured`: errors were measured, which takes equal shapes and types of floating point. `leaf`: which of the output's
    tensors the reason speaks of.
    """

    same: bool = True
    reason: str = ""
    errors: Errors = field(default_factory=Errors)
    reference: Errors = field(default_factory=Errors)
    bounds: Errors = field(default_factory=Errors)
    measured: bool = False
    leaf: int = 0

    def closeness(self) -> float:
        """The larger of the two ratios error : bound; above 1 a bound is exceeded."""
        ratios = [
            got / bound if bound > 0 else (0.0 if got == 0 else math.inf)
            for got, bound in (
                (self.errors.normwise, self.bounds.normwise),
                (self.errors.componentwise, self.bounds.componentwise),
            )
        ]
        return math.nan if any(r != r for r in ratios) else max(ratios)


def shape_of(value: Any) -> str:
    """A tensor as its shape and dtype; any other value as itself, on one line."""
    if isinstance(value, Tensor):
        return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    return one_line(repr(value), 80)


def judge(got: Any, truths: Sequence[Truth]) -> Judgement:
    """Compare a whole output with the truth of every tensor in it. The first that differs, or else the closest to its bound."""
    found = leaves(got)
    if [path for path, _ in found] != [truth.path for truth in truths]:
        expected = ", ".join(f"{t.path} {shape_of(t.reference)}" for t in truths[:8])
        seen = ", ".join(f"{one_line(path, 80)} {shape_of(leaf)}" for path, leaf in found[:8])
        return Judgement(False, f"the outputs are built differently: {seen or 'nothing'}; the reference's: {expected}")
    worst = Judgement()
    for number, ((_, leaf), truth) in enumerate(zip(found, truths, strict=True)):
        result = judge_leaf(leaf, truth)
        result.leaf = number
        if not result.same:
            return result
        if not (result.closeness() < worst.closeness()):
            worst = result
    return worst


def judge_leaf(got: Any, truth: Truth) -> Judgement:
    """Compare one tensor (or plain value) with its truth."""
    name, reference = truth.path, truth.reference
    if not isinstance(reference, Tensor) or not isinstance(got, Tensor):
        if isinstance(got, Tensor) or isinstance(reference, Tensor):
            return Judgement(False, f"{name} is {shape_of(got)}, the reference's is {shape_of(reference)}")
        if isinstance(reference, float) and isinstance(got, (int, float)) and not isinstance(got, bool):
            return judge_leaf(*_as_tensors(got, truth))
        equal = type(got) is type(reference) and got == reference
        return Judgement(equal, "" if equal else f"{name} is {shape_of(got)}, the reference's is {shape_of(reference)}")
    if tuple(got.shape) != tuple(reference.shape):
        return Judgement(False, f"{name} has shape {tuple(got.shape)}, the reference's has {tuple(reference.shape)}")
    if got.dtype != reference.dtype:
        return Judgement(False, f"{name} has dtype {got.dtype}, the reference's has {reference.dtype}")
    if truth.u == 0.0 or truth.bitwise:
        wrong = got != reference if truth.u == 0.0 else ~_same_values(got, reference)
        count = int(wrong.sum())
        if count <= FLIPS * truth.flips:
            return _judge_steps(got, truth)
        said = f"{name}: {count} of {got.numel()} entries are not exactly the reference's, first {_where(wrong)}"
        if truth.flips:
            said += f" (rounding may change {FLIPS * truth.flips})"
        return Judgement(False, said)
    equal = all_equal(got, reference)  # then there is no NaN, and its errors are the reference's own
    reason = "" if equal or (truth.finite() and finite(got)) else _odd_values(*_decided(got, truth), name)
    if truth.relative is not None:
        return _judge_relative(got, truth, reason)
    result = _judge_by_bounds(got, truth, reason, equal)
    if result.same and truth.rows is not None and not equal:
        others = _judge_by_bounds(got, truth.unsliced(), "")
        if not others.same:
            result.same, result.reason = False, f"{others.reason} (against the reference's own result)"
    return result


def _judge_steps(got: Tensor, truth: Truth) -> Judgement:
    """Of integers that may change: how far. A number that is rounded to one moves a little, the place of a maximum anywhere."""
    reference = truth.reference
    if truth.flips < ORDINAL[0] or truth.step == 0 or reference.dtype == torch.bool:
        return Judgement()
    extent = float(reference.max()) - float(reference.min())
    if truth.step > ORDINAL[1] * extent:
        return Judgement()
    apart = (got.double() - reference.double()).abs()
    far = apart > FLIPS * truth.step
    if not bool(far.any()):
        return Judgement()
    said = f"{truth.path}: {int(far.sum())} of {got.numel()} integers are off by up to {float(apart.max()):.6g}"
    return Judgement(False, f"{said}, first {_where(far)} (rounding may move them by {FLIPS * truth.step})")


def _judge_by_bounds(got: Tensor, truth: Truth, reason: str, equal: bool = False) -> Judgement:
    own, bounds = truth.own()
    result = Judgement(not reason, reason, own if equal else truth.measure(got)[0], own, bounds, measured=True)
    for kind, error, bound in (
        ("normwise", result.errors.normwise, bounds.normwise),
        ("componentwise", result.errors.componentwise, bounds.componentwise),
    ):
        if result.same and not (error <= bound):
            result.same = False
            result.reason = f"{truth.path}: {kind} error {error:.3g} is above the bound {bound:.3g}"
    if result.same and not equal and (said := _judge_columns(got, truth, bounds) or _judge_small(got, truth)):
        result.same, result.reason = False, said
    return result


def _judge_small(got: Tensor, truth: Truth) -> str:
    """What is said of small entries that are lost in bulk, as where an exponential is cut off; empty if none are. The bounds,
    parts of the whole's size, leave room for it. Lost is an entry that is off by more than half of itself, where the reference's
    is right to ten bits: an honest sum is hundreds of times less accurate than the reference's nowhere."""
    exact, own = truth.exact, truth.reference
    if not isinstance(exact, Tensor) or truth.gauge is not None or truth.rows is not None or truth.picked:
        return ""
    if truth.extreme or truth.u != U32 or own.is_complex() or not (truth.finite() and finite(exact)):
        return ""

    def lost(c: Tensor, r: Tensor, x: Tensor) -> int:
        c, r, x = c.double(), r.double(), x.double()
        size = x.abs()
        found = (c - x).abs() > size / 2
        if not bool(found.any()):
            return 0
        return int((found & ((r - x).abs() <= size * SMALL[0]) & (size > SMALLEST)).sum())

    count = sum(over(lost, got, own, exact))
    if count <= SMALL[1] * got.numel():
        return ""
    return (
        f"{truth.path}: {count} of {got.numel()} entries, small beside the others, are off by more than half of themselves; the "
        "reference's are right there"
    )


def _judge_columns(got: Tensor, truth: Truth, bounds: Errors) -> str:
    """Which column is wrong by itself, where there are few: one of small numbers beside one of large ones, which decide the
    errors of the whole. Empty if none is. Its error in the reference's result stands for what rounding makes of it."""
    exact = truth.exact
    if not isinstance(exact, Tensor) or truth.gauge is not None or truth.rows is not None or truth.picked:
        return ""
    axes = sorted({1, got.dim() - 1}) if got.dim() > 1 else []  # channels, columns
    axes = [i for i in axes if 2 <= got.shape[i] <= MOST_COLUMNS and got.numel() >= LEAST_ROWS * got.shape[i]]
    if not axes or not (truth.finite() and finite(exact)):
        return ""
    return next((said for axis in axes if (said := _judge_axis(got, truth, bounds, axis))), "")


def _judge_axis(got: Tensor, truth: Truth, bounds: Errors, axis: int) -> str:
    columns = got.shape[axis]
    x = _wide(truth.exact).movedim(axis, -1).reshape(-1, columns)
    size = torch.linalg.vector_norm(x, dim=0)
    off, usual = (
        torch.linalg.vector_norm(_wide(t).movedim(axis, -1).reshape(-1, columns) - x, dim=0) / size
        for t in (got, truth.reference)
    )
    allowed = (OWN_COLUMN * usual).clamp_min(COLUMN * bounds.normwise)
    wrong = (off > allowed) & (size > 2.0**-20 * size.max())
    if not bool(wrong.any()):
        return ""
    at = int(wrong.to(torch.uint8).argmax())
    return (
        f"{truth.path}: entry {at} of {columns} along axis {axis} has normwise error {float(off[at]):.3g}, the reference's "
        f"{float(usual[at]):.3g}, above the bound {float(allowed[at]):.3g}"
    )


def _as_tensors(got: float, truth: Truth) -> tuple[Tensor, Truth]:
    def wide(x: Any) -> Tensor:
        try:
            return torch.tensor(float(x), dtype=torch.float32)
        except OverflowError:  # an int that no float holds
            return torch.tensor(math.inf if x > 0 else -math.inf, dtype=torch.float32)

    exact = wide(truth.exact).double() if isinstance(truth.exact, (int, float)) else None
    return wide(got), replace(
        truth, reference=wide(truth.reference), exact=exact, _own=None, _scale=None, _finite=None, _whole=None
    )


def _same_values(got: Tensor, reference: Tensor) -> Tensor:
    return (got == reference) | (got.isnan() & reference.isnan())


def _where(mask: Tensor) -> str:
    index = int(mask.reshape(-1).to(torch.uint8).argmax())
    place = []
    for size in reversed(mask.shape):
        place.append(index % size)
        index //= size
    return "at " + str(tuple(reversed(place)))


INF_HINT = "; the reference's are infinite there: compensated or split sums need a guard for Inf"


def _decided(got: Tensor, truth: Truth) -> tuple[Tensor, Tensor]:
    """`got` and the reference's result, with the entries equal in which either of two answers is right: those that the
    reference's own run makes NaN or Inf of, and its float64 run something else.

    torch's GELU of Inf is NaN in fp32 on some processors and Inf in float64: any value that is not finite is right there. Where
    the float64 run is finite, the reference's algorithm has spread a NaN further than it has to (a convolution by tiles, say):
    right is what the reference has, or a number as near to the truth as any other entry has to be.
    """
    reference, exact = truth.reference, truth.exact
    if truth.free is not None:
        where, usual = (t.to(got.device) for t in truth.free)
        where = where & ~reference.isfinite() & got.isfinite()
        if bool(where.any()):
            _, bounds = truth.own()
            unit = usual.abs() + _rms(usual)
            near = (got.double() - usual.double()).abs() <= bounds.componentwise * truth.u * unit.double()
            got = torch.where(where & near, reference, got)
    if truth.either:
        got = torch.where(reference.isnan(), reference, got)
    if (
        not isinstance(exact, Tensor)
        or truth.rows is not None
        or reference.is_complex()
        or exact.shape != reference.shape
    ):
        return got, reference
    if truth.finite():
        return got, reference
    wide, other = reference.double(), exact.to(reference.device)
    apart = ~wide.isfinite() & ~((wide == other) | (wide.isnan() & other.isnan()))
    either = apart & ~other.isfinite() & ~got.isfinite()
    spread = apart & other.isfinite() & got.isfinite()
    if bool(spread.any()):
        _, bounds = truth.own()
        unit = truth.gauge[spread] if truth.gauge is not None else other[spread].abs() + _rms(other)
        error = (got[spread].double() - other[spread]).abs()
        spread[spread.clone()] = error <= bounds.componentwise * truth.u * unit
    return torch.where(either | spread, reference, got), reference


def _odd_values(got: Tensor, reference: Tensor, name: str) -> str:
    """How NaN, +Inf and -Inf of `got` are in other places than those of `reference`; empty if they are in the same."""
    got, reference = got.detach(), reference.detach()
    if got.is_complex():
        got, reference = torch.view_as_real(got.resolve_conj()), torch.view_as_real(reference.resolve_conj())
    for what, a, b in (
        ("NaN", got.isnan(), reference.isnan()),
        ("+Inf", got == math.inf, reference == math.inf),
        ("-Inf", got == -math.inf, reference == -math.inf),
    ):
        extra, missing = a & ~b, b & ~a
        if bool(extra.any()):
            hint = INF_HINT if what == "NaN" and bool(reference[extra].isinf().all()) else ""
            return f"{name}: {int(extra.sum())} entries are {what} where the reference's are not, first {_where(extra)}{hint}"
        if bool(missing.any()):
            return f"{name}: {int(missing.sum())} entries are not {what} where the reference's are, first {_where(missing)}"
    return ""


def _judge_relative(got: Tensor, truth: Truth, reason: str) -> Judgement:
    assert truth.relative is not None
    floor = truth.floor

    def largest(c: Tensor, r: Tensor) -> float:
        c, r = c.double(), r.double()
        ok = torch.isfinite(r)
        size = r.abs().clamp_min(floor)
        ratio = torch.where(c == r, torch.zeros_like(c), (c - r).abs() / size)[ok]
        return float(ratio.max()) if ratio.numel() else 0.0

    worst = 0.0
    for one in over(largest, got, truth.reference):
        worst = _max(worst, one)
    errors = Errors(worst, worst / truth.u)
    bounds = Errors(truth.relative, truth.relative / truth.u)
    result = Judgement(not reason, reason, errors, Errors(), bounds, measured=True)
    if result.same and not (worst <= truth.relative):
        result.same = False
        result.reason = f"{truth.path}: relative error {worst:.3g} is above the bound {truth.relative:.3g}"
    return result


def same_bits(a: Any, b: Any) -> bool:
    """Whether two trees hold the same bits, NaN included."""
    left, right = leaves(a), leaves(b)
    if [path for path, _ in left] != [path for path, _ in right]:
        return False
    for (_, x), (_, y) in zip(left, right, strict=True):
        if isinstance(x, Tensor) != isinstance(y, Tensor):
            return False
        if isinstance(x, Tensor):
            if x.shape != y.shape or x.dtype != y.dtype:
                return False
            if not all_equal(*(t.contiguous().reshape(-1).view(torch.uint8) for t in (x, y))):
                return False
        elif not (x == y or (x != x and y != y)):
            return False
    return True
