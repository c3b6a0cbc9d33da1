"""Same or different: one output against its truth. Pure functions of tensors and numbers.

The rule (docs/same.md has the measurements behind it). Let u be the unit roundoff of the output's dtype, K the
number of terms that are summed, C64 the float64 truth, and G the gauge of errors. The two errors are

    normwise       ||C - C64|| / ||C64||
    componentwise  max |C - C64| / (u G)

An output is the same as the reference's if it has NaN and Inf where the reference has them (odd_values.py has the exceptions)
and both errors are at most

    normwise       max(sqrt(K) / 2, 8) u max(1, ||G|| / (sqrt(K) ||C64||))
    componentwise  max(2 sqrt(K), 32)

or three times the error of a perturbed run (rounding.py; more for a probe's steep data, bounds.py), or four times the
reference's own error, whichever is the largest.
For more than MANY_ENTRIES entries, the perturbed run counts normwise up to OWN_ERROR_FACTOR times the reference's own error.
Four times the reference's own error counts up to OWN_ERROR_CAP times the larger of the other two bounds: an error beyond that
is not due to rounding, and there is no verdict. For a product with an epilogue, G is |A||B| + |bias|, and no run is
perturbed; otherwise G is |C64| + rms(C64), and the last normwise factor is left out. Where the reference rounds nothing at all
(a maximum, a sort), the bounds are u and 2. In fp16 and bf16 the floors are 2 u and 8 instead of 8 u and 32, and the terms
with sqrt(K) are those of fp32, in which sums are kept.
Every comparison is written `not (error <= bound)`, so that NaN never passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..exchange.memory import bits_of
from ..exchange.wire import leaves
from ..text import one_line
from ..verdict import closeness_of
from . import sizes
from .bounds import FLIPS_FACTOR, U32, Errors, Truth, take, widened, without, worse
from .odd_values import decided, difference, first_place, settled
from .pieces import equal as all_equal
from .pieces import finite, over

# Integers are taken for sizes, not for places, if at least ORDINAL_CHANGES of them change in a perturbed run and none of these
# moves by more than ORDINAL_SHARE of their range.
ORDINAL_CHANGES = 8
ORDINAL_SHARE = 1 / 64
# From so many rows on, the reference's own error in a column is enough to tell what rounding does there.
MANY_ROWS = 256
# A column's error may be COLUMN_FACTOR times the whole's bound (PERTURBED_COLUMN_FACTOR times where the error that a perturbed
# run has in the column is known too), or OWN_COLUMN_FACTOR times the reference's own error there.
COLUMN_FACTOR = 64.0
PERTURBED_COLUMN_FACTOR = 8.0
OWN_COLUMN_FACTOR = 32.0
# The most columns that are taken for separate quantities put side by side. More columns may be places, over which a Fourier
# transform spreads its errors.
MOST_PARTS = 16
PARTS_OF_COMPLEX = ("its real part", "its imaginary part")
MIN_ROW_ENTRIES = 8  # the fewest entries of a row that is judged by itself
COUNTED_SHARE = 2.0**-20  # entries, rows and columns below this part of the largest are not judged by themselves
# An entry is lost if it is off by more than half of itself where the reference's relative error is at most SMALL_ERROR. At most
# SMALL_SHARE of all entries may be lost, and at most SMALL_SHARE of those of one size may be wrong.
SMALL_ERROR = 2.0**-10
SMALL_SHARE = 1 / 256
SIZE_BOUND = 16.0  # how many u of the whole's root mean square any entry of a group of one size may be off
# How many u of the whole's root mean square all entries of a row or a column may be off: a Fourier transform along another axis
# has errors in proportion to its input, and a filter may make its output several times smaller than that.
PLACE_BOUND = 32.0
MIN_WRONG_OF_SIZE = 2  # the fewest wrong entries of one size that make an output different
SMALLEST_SIZE = 2.0**-100  # smaller entries do not count as lost; this is far above where fp32 numbers have fewer bits
# If a perturbed run moves an output by more than this part of its size, rounding decides what single entries are.
DECIDED_BY_ROUNDING = 0.25


@dataclass
class Judgement:
    """The outcome of comparing one output with its truth.

    `measured`: whether errors were measured; this needs equal shapes and dtypes, and floating point. `leaf`: the number of the
    output's tensor that `reason` is about.
    """

    same: bool = True
    reason: str = ""
    errors: Errors = field(default_factory=Errors)
    reference: Errors = field(default_factory=Errors)
    bounds: Errors = field(default_factory=Errors)
    measured: bool = False
    leaf: int = 0

    def closeness(self) -> float:
        """Return the larger of the two ratios error : bound; above 1 a bound is exceeded."""
        errors, bounds = self.errors, self.bounds
        return closeness_of([(errors.normwise, bounds.normwise), (errors.componentwise, bounds.componentwise)])


def shape_of(value: Any) -> str:
    """Return a tensor's shape and dtype as text; any other value as its repr, on one line."""
    if isinstance(value, Tensor):
        return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    return one_line(repr(value), 80)


def judge(got: Any, truths: Sequence[Truth]) -> Judgement:
    """Compare a whole output with the truth of every tensor in it.

    Return the judgement of the first tensor that differs, or else of the one that is closest to its bound.
    """
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
            return judge_leaf(*as_tensors(got, truth))
        equal = type(got) is type(reference) and got == reference
        return Judgement(equal, "" if equal else f"{name} is {shape_of(got)}, the reference's is {shape_of(reference)}")
    if tuple(got.shape) != tuple(reference.shape):
        return Judgement(False, f"{name} has shape {tuple(got.shape)}, the reference's has {tuple(reference.shape)}")
    if got.dtype != reference.dtype:
        return Judgement(False, f"{name} has dtype {got.dtype}, the reference's has {reference.dtype}")
    if truth.u == 0.0 or truth.bitwise:
        wrong = got != reference if truth.u == 0.0 else ~_same_values(got, reference)
        count = int(wrong.sum())
        if count <= FLIPS_FACTOR * truth.flips:
            return _judge_steps(got, truth) if truth.tied is None else _judge_codes(got, truth, truth.tied)
        said = f"{name}: {count} of {got.numel()} entries are not exactly the reference's, first {first_place(wrong)}"
        if truth.flips:
            said += f" (rounding may change {FLIPS_FACTOR * truth.flips})"
        return Judgement(False, said)
    got = settled(got, truth)
    if (sure := truth.without_ties()) is not truth:
        assert truth.loose is not None
        got, truth = without(got, truth.exact, truth.loose).to(got.dtype), sure
    equal = all_equal(got, reference)  # if so, it has no NaN, and its errors are the reference's own
    reason = (
        ""
        if equal or (truth.finite() and finite(got))
        else difference(*decided(got, truth), name, truth.free[0] if truth.free is not None else None)
    )
    if truth.relative is not None:
        return _judge_relative(got, truth, reason)
    result = _judge_by_bounds(got, truth, reason, equal)
    if result.same and truth.rows is not None and not equal:
        others = _judge_by_bounds(got, truth.unsliced(), "")
        if not others.same:
            result.same, result.reason = False, f"{others.reason} (against the reference's own result)"
    return result


def _judge_codes(got: Tensor, truth: Truth, flips: int) -> Judgement:
    """Judge integers that may each be the place of any of several equal entries, so that only negative ones can be compared.

    A negative integer, such as a -1 for what has no place, must stand where the reference has it. `flips`: how many of all
    integers rounding may change.
    """
    reference = truth.reference
    codes = reference[reference < 0].unique() if reference.dtype.is_signed else reference[:0]
    if codes.numel() != 1 or not bool((reference >= 0).any()):
        return Judgement()
    wrong = (got == codes) != (reference == codes)
    if int(wrong.sum()) <= FLIPS_FACTOR * flips:
        return Judgement()
    said = f"{truth.path}: {int(wrong.sum())} of {got.numel()} entries are {int(codes)} where the reference's are not"
    return Judgement(False, f"{said}, or the other way round, first {first_place(wrong)}")


def _judge_steps(got: Tensor, truth: Truth) -> Judgement:
    """Judge how far integers moved that rounding may change.

    A number that is rounded to an integer moves a little; the place of a maximum may move anywhere.
    """
    reference = truth.reference
    if truth.flips < ORDINAL_CHANGES or truth.step == 0 or reference.dtype == torch.bool:
        return Judgement()
    extent = float(reference.max()) - float(reference.min())
    if truth.step > ORDINAL_SHARE * extent:
        return Judgement()
    apart = (got.double() - reference.double()).abs()
    far = apart > FLIPS_FACTOR * truth.step
    if not bool(far.any()):
        return Judgement()
    said = f"{truth.path}: {int(far.sum())} of {got.numel()} integers are off by up to {float(apart.max()):.6g}"
    return Judgement(False, f"{said}, first {first_place(far)} (rounding may move them by {FLIPS_FACTOR * truth.step})")


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
    if not result.same or equal:
        return result
    part = truth.part()
    of_part = got if truth.rows is None else take(got, truth.rows)
    if (
        said := _judge_columns(of_part, part, result.errors)
        or _judge_rows(of_part, part)
        or _judge_entries(of_part, part)
        or _judge_small(of_part, part)
        or _judge_sizes(of_part, part, result.errors)
        or _judge_imaginary(of_part, part, result.errors)
    ):
        of = "" if truth.rows is None else " (of the part of the batch that the float64 truth is of)"
        result.same, result.reason = False, said + of
    return result


def _has_parts(truth: Truth) -> bool:
    """Return whether parts of an output are judged by themselves.

    This needs a float64 truth of all of it, no gauge (which says for each entry what rounding does), and some rounding.
    """
    return isinstance(truth.exact, Tensor) and truth.gauge is None and not truth.picked


def _judge_small(got: Tensor, truth: Truth) -> str:
    """Return what is wrong if many small entries are lost, as where an exponential is cut off; empty if they are not.

    The other bounds are parts of the whole's size, which leaves room for this. An entry is lost if it is off by more than half of
    itself where the reference is right to ten bits: no honest sum is hundreds of times less accurate than the reference's.
    Outputs whose sign rounding decides, such as angles, are left out.
    """
    exact, own = truth.exact, truth.reference
    if (
        not _has_parts(truth)
        or truth.extreme
        or truth.u != U32
        or own.is_complex()
        or not (truth.finite() and finite(exact))
        or truth.unordered
        or (truth.noise is not None and not (truth.noise.normwise <= DECIDED_BY_ROUNDING))
    ):
        return ""

    def lost(c: Tensor, r: Tensor, x: Tensor) -> int:
        c, r, x = c.double(), r.double(), x.double()
        size = x.abs()
        found = (c - x).abs() > size / 2
        if not bool(found.any()):
            return 0
        return int((found & ((r - x).abs() <= size * SMALL_ERROR) & (size > SMALLEST_SIZE)).sum())

    count = sum(over(lost, got, own, exact))
    if count <= SMALL_SHARE * got.numel():
        return ""
    return (
        f"{truth.path}: {count} of {got.numel()} entries, small beside the others, are off by more than half of themselves; the "
        "reference's are right there"
    )


def _judge_entries(got: Tensor, truth: Truth) -> str:
    """Return which entry is wrong by itself; empty if none is.

    This is for outputs of so few entries that perturbed runs tell for each what rounding does to it. It finds a wrong small
    statistic beside a large one, which decides the errors of the whole.
    """
    exact = truth.exact
    if (
        not _has_parts(truth)
        or truth.extreme
        or got.numel() < 2
        or len(truth.entries) != got.numel()
        or not (truth.finite() and finite(exact))
    ):
        return ""
    x = widened(exact).reshape(-1)
    off, usual = (torch.sub(widened(t).reshape(-1), x).abs() for t in (got, truth.reference))
    perturbed = torch.tensor(truth.entries, dtype=torch.float64, device=x.device)
    size = x.abs()
    allowed = torch.maximum(
        OWN_COLUMN_FACTOR * torch.maximum(usual, perturbed), COLUMN_FACTOR * truth.usual_bound() * size
    )
    wrong = (off > allowed) & (size > COUNTED_SHARE * size.max())
    if not bool(wrong.any()):
        return ""
    at = int(wrong.to(torch.uint8).argmax())
    return (
        f"{truth.path}: entry {at} of {got.numel()}, small beside others, is off by {float(off[at]):.3g}, the reference's by "
        f"{float(usual[at]):.3g}, above the bound {float(allowed[at]):.3g}"
    )


def _judge_sizes(got: Tensor, truth: Truth, errors: Errors) -> str:
    """Return which entries are wrong among those of about one size, such as the tails of probabilities; empty if none are.

    An entry is wrong if its error exceeds its own size times the larger of two numbers, plus SIZE_BOUND u of the whole's root
    mean square, which a Fourier transform may be off. The two numbers are COLUMN_FACTOR times the whole's bound, and
    OWN_COLUMN_FACTOR times the relative error of the reference or of a perturbed run, whichever is larger, at about this size.
    Of each size one entry in 256 may be wrong, and one in any case.
    """
    exact, own = truth.exact, truth.reference
    if not _has_parts(truth) or truth.extreme or truth.u != U32 or (truth.noise is not None and not truth.sizes):
        return ""
    if errors.componentwise <= SIZE_BOUND or not (truth.finite() and finite(exact)):
        return ""  # every entry is within SIZE_BOUND u of the whole's size and its own
    if truth.own_sizes is None:
        truth.own_sizes = sizes.relative(own, exact)
    usual = [max(pair) for pair in zip(truth.own_sizes, truth.sizes or truth.own_sizes, strict=True)]
    near = [max(usual[max(0, i - 1) : i + 2]) for i in range(len(usual))]
    allowed = [max(COLUMN_FACTOR * truth.usual_bound(), OWN_COLUMN_FACTOR * error) for error in near]
    numbers, wrong = sizes.beyond(got, exact, allowed, SIZE_BOUND * U32 * truth.scale())
    for count, far, bound in zip(numbers, wrong, allowed, strict=True):
        if far >= MIN_WRONG_OF_SIZE and far > SMALL_SHARE * count:
            return (
                f"{truth.path}: {far} of {count} entries of about one size, small beside others, are off by more than "
                f"{bound:.3g} of themselves, far above what rounding does to entries of that size"
            )
    return ""


def _judge_columns(got: Tensor, truth: Truth, errors: Errors) -> str:
    """Return which column is wrong by itself, where there are few columns; empty if none is.

    It finds a wrong column of small numbers beside one of large numbers, which decide the errors of the whole. The reference's
    error in the column says what rounding does there. In a column of few rows that error may be small by chance, so the error of
    a perturbed run counts beside it.
    """
    exact = truth.exact
    if not _has_parts(truth):
        return ""
    few = truth.u == U32 and not truth.extreme and not truth.entries
    axes = [i for i in sizes.axes_of_columns(got) if few or got.numel() >= MANY_ROWS * got.shape[i]]
    if not axes or not (truth.finite() and finite(exact)):
        return ""
    return next((said for axis in axes if (said := _judge_axis(got, truth, errors, axis))), "")


def _judge_rows(got: Tensor, truth: Truth) -> str:
    """Return which row is wrong by itself, for data in which a few rows are unlike the others; empty if none is.

    A row runs along the last axis. Its error may be as large as a column's: COLUMN_FACTOR times the whole's bound,
    OWN_COLUMN_FACTOR times the reference's own error there, or PLACE_BOUND u of the size of the rows beside it along any axis,
    which a Fourier transform over rows may be off.
    """
    exact = truth.exact
    if not truth.by_row or not _has_parts(truth) or truth.u != U32 or got.is_complex() or got.dim() < 2:
        return ""
    length = got.shape[-1]
    if length < MIN_ROW_ENTRIES or not (truth.finite() and finite(exact)):
        return ""
    c, r, x = (widened(t).reshape(-1, length) for t in (got, truth.reference, exact))
    off, usual, size = (torch.linalg.vector_norm(t, dim=-1) for t in (c - x, r - x, x))
    least = PLACE_BOUND * U32 * _beside(size.reshape(got.shape[:-1])).reshape(-1).clamp_min(truth.scale() * length**0.5)
    allowed = torch.maximum(torch.maximum(OWN_COLUMN_FACTOR * usual, COLUMN_FACTOR * truth.usual_bound() * size), least)
    wrong = ~(off <= allowed) & (size > COUNTED_SHARE * size.max())
    if not bool(wrong.any()):
        return ""
    at = int(wrong.to(torch.uint8).argmax())
    return (
        f"{truth.path}: row {at} of {len(size)} has normwise error {float(off[at] / size[at]):.3g}, the reference's "
        f"{float(usual[at] / size[at]):.3g}, above the bound {float(allowed[at] / size[at]):.3g}"
    )


def _beside(size: Tensor) -> Tensor:
    """Return for each row the root mean square of the norms of the rows beside it, along the axis where this is the largest."""
    means = [size.square().mean(axis, keepdim=True).expand_as(size) for axis in range(size.dim())]
    return torch.stack(means).amax(0).sqrt()


def _judge_imaginary(got: Tensor, truth: Truth, errors: Errors) -> str:
    """Judge the real and the imaginary parts as two columns, and return which is wrong by itself; empty if neither is."""
    exact = truth.exact
    if not got.is_complex() or not _has_parts(truth) or truth.extreme or got.numel() < MANY_ROWS:
        return ""
    if not (truth.finite() and finite(exact)):
        return ""
    parts = truth.other(
        reference=torch.view_as_real(truth.reference.resolve_conj()), exact=torch.view_as_real(exact.resolve_conj())
    )
    return _judge_axis(torch.view_as_real(got.resolve_conj()), parts, errors, got.dim(), PARTS_OF_COMPLEX)


def _judge_axis(got: Tensor, truth: Truth, errors: Errors, axis: int, names: Sequence[str] = ()) -> str:
    """Return which column along `axis` is wrong by itself; empty if none is. `names`: what the columns are called."""
    columns = got.shape[axis]
    x = widened(truth.exact)
    if axis not in truth.columns:
        truth.columns[axis] = sizes.by_column(x, axis)
    size = truth.columns[axis]
    counted = size > COUNTED_SHARE * size.max()
    if bool(counted.any()):
        most = errors.normwise * float(torch.linalg.vector_norm(size))  # no column is further off than the whole
        if most <= PERTURBED_COLUMN_FACTOR * truth.usual_bound() * float(size[counted].min()):
            return ""
    off, usual = (sizes.by_column(torch.sub(widened(t), x), axis) / size for t in (got, truth.reference))
    least = COLUMN_FACTOR
    if axis in truth.moved and got.numel() < MANY_ROWS * columns:
        usual = torch.maximum(usual, torch.tensor(truth.moved[axis], dtype=usual.dtype, device=usual.device) / size)
        least = PERTURBED_COLUMN_FACTOR
    allowed = (OWN_COLUMN_FACTOR * usual).clamp_min(least * truth.usual_bound())
    if columns > MOST_PARTS and got.numel() < MANY_ROWS * columns:
        allowed = torch.maximum(allowed, PLACE_BOUND * U32 * truth.scale() * (got.numel() / columns) ** 0.5 / size)
    wrong = (off > allowed) & counted
    if not bool(wrong.any()):
        return ""
    at = int(wrong.to(torch.uint8).argmax())
    of = names[at] if names else f"entry {at} of {columns} along axis {axis}"
    return (
        f"{truth.path}: {of} has normwise error {float(off[at]):.3g}, the reference's "
        f"{float(usual[at]):.3g}, above the bound {float(allowed[at]):.3g}"
    )


def as_tensors(got: float, truth: Truth) -> tuple[Tensor, Truth]:
    def wide(x: Any) -> Tensor:
        try:
            return torch.tensor(float(x), dtype=torch.float32)
        except OverflowError:  # an int that is too large for a float
            return torch.tensor(math.inf if x > 0 else -math.inf, dtype=torch.float32)

    exact = wide(truth.exact).double() if isinstance(truth.exact, (int, float)) else None
    return wide(got), truth.other(reference=wide(truth.reference), exact=exact)


def _same_values(got: Tensor, reference: Tensor) -> Tensor:
    return (got == reference) | (got.isnan() & reference.isnan())


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
        worst = worse(worst, one)
    errors = Errors(worst, worst / truth.u)
    bounds = Errors(truth.relative, truth.relative / truth.u)
    result = Judgement(not reason, reason, errors, Errors(), bounds, measured=True)
    if result.same and not (worst <= truth.relative):
        result.same = False
        result.reason = f"{truth.path}: relative error {worst:.3g} is above the bound {truth.relative:.3g}"
    return result


def same_bits(a: Any, b: Any) -> bool:
    """Return whether two trees hold the same bits, NaN included."""
    left, right = leaves(a), leaves(b)
    if [path for path, _ in left] != [path for path, _ in right]:
        return False
    for (_, x), (_, y) in zip(left, right, strict=True):
        if isinstance(x, Tensor) != isinstance(y, Tensor):
            return False
        if isinstance(x, Tensor):
            if x.shape != y.shape or x.dtype != y.dtype:
                return False
            if not all_equal(bits_of(x), bits_of(y)):
                return False
        elif not (x == y or (x != x and y != y)):
            return False
    return True
