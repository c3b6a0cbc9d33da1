"""What an output should be and how far off it may be: the truth of one output, and the bounds that follow from it.

The rule is in judge.py; these are its numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .pieces import finite, over

U32 = 2.0**-24  # unit roundoff of fp32
# The most terms that one fp32 accumulator is assumed to sum in order. A longer sum of positive numbers stops growing, for
# instance at 2^24 ones.
LONGEST_SUM = 1 << 22
NOISE_FACTOR = 3.0  # how many times a perturbed run's errors are allowed
# On a probe's data this factor grows with the run's error, to STEEP_FACTOR times as much where the error is STEEP_FROM of the
# result or more; the growth allows at most STEEP_AT_MOST of the result. Neighbours among nearly equal numbers are rounded alike,
# so where they are averaged (a batch norm's output behind a pooling), their errors average out less than those of a perturbed
# run, where each is drawn by itself.
STEEP_FROM = 1e-3
STEEP_FACTOR = 16.0
STEEP_AT_MOST = 0.25
# For more than MANY_ENTRIES entries, a perturbed run may widen the normwise bound to at most OWN_ERROR_FACTOR times the
# reference's own error.
MANY_ENTRIES = 1024
OWN_ERROR_FACTOR = 64.0
OWN_ERROR_CAP = 16.0  # the reference's own errors count up to so many times the errors that rounding explains
# How many times the errors of sums in order are allowed (in_order.py), and how many times the other bounds that may be at most.
ORDER_FACTOR = 2.0
ORDER_CAP = 16.0
# FLIPS_FACTOR times as many integers may change as in a perturbed run, and each by FLIPS_FACTOR times as much.
FLIPS_FACTOR = 4

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

    What is known of the output:
    - `path`: the output's place among the model's outputs. `reference`: the reference's own result.
    - `exact`: the float64 truth; without it, the reference's result is taken instead. `rows`: if set, `exact` has only these
      entries of the first axis.
    - `gauge`: the gauge of its errors; without it the model is no contraction. `k`: how many terms are summed. `working`: the
      coarsest unit roundoff that the model computes in.
    - `picked`: its values are entries of the inputs, and nothing is rounded.

    What perturbed runs say (rounding.py):
    - `noise`: how far honest rounding may move the output. `entries`: of few entries, how far it moves each. Of more, `sizes`:
      how far it moves the entries of each size, and `moved`: each column, by axis (sizes.py).
    - `flips`: how many integers rounding changes. `step`: by how much at most. `tied`: set if each integer may be the place of
      any of several equal entries; then `flips` is the number of all, and `tied` how many rounding changes.
    - `unordered`: on the way equal entries were sorted, whose order torch does not define. The perturbed run has another order,
      and the reference's own error says nothing of that.
    - `loose`: how far each entry moves where numbers near a tie go to the other side (ties.py).
    - `ordered`: the errors of the same output with its sums made in order, if they were asked for (in_order.py).

    What NaN and Inf may be:
    - `either`: where the reference has NaN, any value is right.
    - `free`: where NaN and Inf of the inputs decide nothing, because any number in their place would give the same, and what
      this same output is. `spreads`: a NaN is right there too.
    - `spread`: entries that the candidate may make NaN though the reference does not.
    - `compares`: the model does not treat NaN specially, so where one led to a number, by comparisons, any value is right.

    What data it is of, and how it is judged:
    - `extreme`: data on which honest arithmetic of 22 bits loses small entries beside large ones, or on which the reference may
      be exact by chance. `gross`: of these, data on which only gross errors are judged. `steep`: a probe's data, of which
      rounding may decide much. `by_row`: rows are judged by themselves too.
    - `columns`: by axis, the norm of each column, and `own_sizes`: the reference's errors by size, once these are known.
    - Two other rules may replace the bounds. With `bitwise`, every value must equal the reference's. With `relative`,
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
    tied: int | None = None
    step: int = 0
    entries: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    moved: dict[int, list[float]] = field(default_factory=dict)
    rows: Tensor | None = None
    either: bool = False
    picked: bool = False
    free: tuple[Tensor, Tensor] | None = None
    spreads: bool = False
    spread: Tensor | None = None
    compares: bool = False
    extreme: bool = False
    gross: bool = False
    steep: bool = False
    by_row: bool = False
    unordered: bool = False
    loose: Tensor | None = None
    ordered: Errors | None = None
    columns: dict[int, Tensor] = field(default_factory=dict)
    own_sizes: list[float] | None = None
    _own: tuple[Errors, Errors] | None = None
    _usual: float = 0.0
    _scale: float | None = None
    _finite: bool | None = None
    _whole: Truth | None = None
    _part: Truth | None = None
    _settled: Truth | None = None

    def __post_init__(self) -> None:
        """Move all tensors to the reference's device.

        The float64 truth, which has twice the reference's bytes, may have come on the card where the reference came by the host.
        """
        if isinstance(self.reference, Tensor):
            if isinstance(self.exact, Tensor):
                self.exact = self.exact.to(self.reference.device)
            if self.gauge is not None:
                self.gauge = self.gauge.to(self.reference.device)

    def excuses_most(self) -> bool:
        """Whether rounding may change half of the entries of an output of integers or booleans, or more."""
        of = self.reference
        return isinstance(of, Tensor) and 2 * FLIPS_FACTOR * self.flips >= of.numel() > 0 and not of.is_floating_point()

    def scale(self) -> float:
        """The root mean square of the truth's finite entries; 0 where there is a gauge."""
        if self._scale is None:
            self._scale = 0.0 if self.gauge is not None else rms(self.reference if self.exact is None else self.exact)
        return self._scale

    def finite(self) -> bool:
        """Return whether the reference's result is finite everywhere."""
        if self._finite is None:
            self._finite = finite(self.reference)
        return self._finite

    @property
    def u(self) -> float:
        return ROUNDOFF.get(getattr(self.reference, "dtype", torch.float64), 0.0)

    def measure(self, got: Tensor) -> tuple[Errors, float, float]:
        """Return the errors of `got`, ||C64|| and ||gauge||, over the entries where the reference and the truth are finite."""
        exact = self.reference if self.exact is None else self.exact
        own, gauge = self.part().reference, self.gauge
        if self.rows is not None:
            got = take(got, self.rows)
            gauge = None if gauge is None else take(gauge, self.rows)
        scale, u = self.scale(), self.u
        sums = over(lambda c, r, x, g: _sums(c, r, x, g, scale, u), got, own, exact, gauge)
        difference, norm, gauge_norm = (math.fsum(one[i] for one in sums) for i in range(3))
        worst = 0.0
        for one in sums:
            worst = worse(worst, one[3])
        normwise = math.sqrt(difference / norm) if norm > 0 else (0.0 if difference == 0 else math.inf)
        errors = Errors(normwise if difference == difference else math.nan, worst)
        return errors, math.sqrt(norm), math.sqrt(gauge_norm)

    def unsliced(self) -> Truth:
        """Return a truth of all entries that is the reference's own result, where the float64 truth has only some of them."""
        if self._whole is None:
            self._whole = self.other(exact=None, rows=None)
        return self._whole

    def part(self) -> Truth:
        """Return the truth of only those entries that `exact` has."""
        if self.rows is None:
            return self
        if self._part is None:
            gauge = None if self.gauge is None else take(self.gauge, self.rows)
            self._part = self.other(reference=take(self.reference, self.rows), gauge=gauge, rows=None)
        return self._part

    @property
    def many(self) -> bool:
        """Whether the reference's own errors are known, and of so many entries that they say what rounding does.

        Those of a model in float64 are not known: the truth is its own result.
        """
        known = not self.extreme and not self.unordered and self.exact is not None
        if isinstance(self.exact, Tensor) and isinstance(self.reference, Tensor):
            known = known and self.exact.dtype != self.reference.dtype
        return known and isinstance(self.reference, Tensor) and self.reference.numel() > MANY_ENTRIES

    def hold_to_bits(self) -> None:
        """Set `picked` if the reference's result is the float64 one to the last bit: a maximum, a sorted or moved entry.

        This is for random data only: on other data a sum of equal numbers may be exact as well.
        """
        if not isinstance(self.reference, Tensor) or self.u == 0 or self.exact is None or self.gauge is not None:
            return
        if isinstance(self.exact, Tensor) and self.exact.dtype == self.reference.dtype:
            return  # it was not computed in float64
        own = self.own()[0]
        self.picked = own.normwise == 0 and own.componentwise == 0
        self._own = None

    def without_ties(self) -> Truth:
        """Return the truth with those errors of the reference's entries taken out that numbers near a tie explain.

        Return the truth itself if no numbers are near a tie.
        """
        if self.loose is None or self.rows is not None or not isinstance(self.exact, Tensor):
            return self
        if self._settled is None:
            near = without(self.reference, self.exact, self.loose).to(self.reference.dtype)
            self._settled = self.other(reference=near, loose=None)
        return self._settled

    def forget(self) -> None:
        """Forget the bounds, so that they are computed anew when asked for: `noise` has changed."""
        self._own = self._settled = self._whole = self._part = None

    def other(self, **fields: Any) -> Truth:
        """Return a copy with these `fields` changed, of which nothing has been computed yet."""
        return replace(
            self,
            **fields,
            _own=None,
            _scale=None,
            _finite=None,
            _whole=None,
            _part=None,
            _settled=None,
            columns={},
            own_sizes=None,
        )

    def _allowed(self, noise: float) -> float:
        """Return the relative error that is allowed where a perturbed run has the relative error `noise`."""
        steeper = NOISE_FACTOR * noise * (1 + (STEEP_FACTOR - 1) * min(noise / STEEP_FROM, 1.0)) if self.steep else 0.0
        return max(NOISE_FACTOR * noise, min(steeper, STEEP_AT_MOST))

    def own(self) -> tuple[Errors, Errors]:
        """Return the reference's own errors, and the bounds that follow from them."""
        if self._own is None:
            errors, norm, gauge_norm = self.measure(self.reference)
            if self.picked:
                self._own, self._usual = (errors, Errors(self.u, 2.0)), self.u
                return self._own
            root = math.sqrt(max(self.k, 1))
            spread = max(1.0, gauge_norm / (root * norm)) if self.gauge is not None and norm > 0 else 1.0
            slack = 1.0 if self.exact is not None else 2.0
            u = max(self.u, self.working)
            least, entry = (2, 8) if u > U32 else (8, 32)
            normwise = slack * max(root / 2 * min(u, U32), least * u) * spread
            componentwise = slack * max(2 * root * min(u, U32), entry * u) / self.u
            if self.noise is not None:
                most = OWN_ERROR_FACTOR * errors.normwise if self.many else math.inf
                # `slack` is 2 without a float64 truth, because then both results are rounded.
                normwise = max(normwise, min(slack * self._allowed(self.noise.normwise), most))
                componentwise = max(componentwise, slack * self._allowed(self.noise.componentwise * self.u) / self.u)
            normwise = max(normwise, min(4 * errors.normwise, OWN_ERROR_CAP * normwise))
            componentwise = max(componentwise, min(4 * errors.componentwise, OWN_ERROR_CAP * componentwise))
            self._usual = normwise
            if self.ordered is not None:
                normwise = max(normwise, min(ORDER_FACTOR * self.ordered.normwise, ORDER_CAP * normwise))
                wide = min(ORDER_FACTOR * self.ordered.componentwise, ORDER_CAP * componentwise)
                componentwise = max(componentwise, wide)
            self._own = errors, Errors(normwise, componentwise)
        return self._own

    def usual_bound(self) -> float:
        """Return the normwise bound without what sums in order allow: parts of an output are judged by it."""
        self.own()
        return self._usual


def without(got: Tensor, exact: Tensor, room: Tensor) -> Tensor:
    """Return `got` in float64, each entry moved towards the truth by up to its `room`."""
    room = room.to(got.device, torch.float64)
    off = got.double() - exact
    return torch.where(room > 0, got.double() - off.clamp(-room, room), got.double())


def take(t: Tensor, rows: Tensor) -> Tensor:
    return t.index_select(0, rows.to(t.device))


def worse(a: float, b: float) -> float:
    """Return the larger of two numbers; NaN if `b` is NaN, which Python's max may drop."""
    return b if b != b or b > a else a


def widened(t: Tensor) -> Tensor:
    return t.to(torch.complex128 if t.is_complex() else torch.float64)


def _sums(c: Tensor, r: Tensor, x: Tensor, g: Tensor | None, scale: float, u: float) -> tuple[float, ...]:
    """Return for some entries the sums of squares of errors, truth and gauge, and the largest error in u of the gauge."""
    x = widened(x)
    d, size = torch.sub(widened(c), x).abs(), x.abs()
    unit = widened(g) if g is not None else size + scale
    sums = [_square(t) for t in (d, size, unit)]
    if not all(map(math.isfinite, sums)):
        # An entry is NaN, infinite or too large to square. Where NaN and Inf are is compared by odd_values.py.
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


def rms(t: Tensor) -> float:
    """Root mean square of the finite entries."""

    def of(chunk: Tensor) -> tuple[float, int]:
        size = widened(chunk).abs()
        total = _square(size)
        if not math.isfinite(total):
            size = size[torch.isfinite(size)]
            total = _square(size)
        return total, size.numel()

    sums = over(of, t)
    count = sum(n for _, n in sums)
    return math.sqrt(math.fsum(total for total, _ in sums) / count) if count else 0.0
