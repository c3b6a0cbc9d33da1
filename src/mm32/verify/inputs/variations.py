"""Other data for any model, made from its own: the same shapes and kinds of values, but of other signs, sizes and places.

What is a mask, a label, an index or a distribution stays one. Where the reference has no finite answer for the new
data, or fails on them, the variation does not apply: the reference's process tries it first. Runs in the reference's process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from . import chains, regrouped
from .catalogue import BY_NAME, LATER_INPUT, MIXED, OTHERS
from .contents import (
    CORNER,
    LEAST,
    LOOKED_AT,
    ORDERED,
    WIDEST,
    CannotVary,
    adds_up,
    axis_of_sums,
    changed,
    few,
    few_values,
    has_structure,
    is_complex_data,
    is_data,
    like,
    size_of,
    structure,
)

MASK_VALUES = 3  # of a matrix, at most, that says who has to do with whom
SPREAD = 4.0  # of the logarithm of a product of numbers near 1
MOST_DISTINCT = 1 << 22  # numbers from 1/2 to 3/2 that are no two alike
LEAST_STRIDES = 12  # entries of a row at a stride: a choice by pieces has fewer from each
KINDS, PEAKED = 5, 8.0  # of rows that add up to one; how many times as large the scores of peaked ones are
FAR = 16.0  # times the largest entry
HUGE = 1e36  # of fp32, and of bfloat16
CONDITION = 6  # log2 of that of positive definite matrices
# Of so many rows one is of another kind, and one of each kind or two: the fewer, the fewer looks meet one.
RARE, MOST_RARE = 64, 2
SAMPLED = 8  # rows of a multiple of this number stay as they are: they are what is looked at

# Another row, made of (a row, the usual size of entries).
Kind = Callable[[Tensor, float, torch.Generator], Tensor]


def fill(
    name: str,
    values: Sequence[object],
    generator: torch.Generator,
    matrices: bool = False,
    single: bool = False,
) -> list[object]:
    """The flat inputs changed, by the variation of that name. With `matrices`, symmetric and triangular ones are changed too
    where there are no other data, and stay symmetric or triangular. `single`: the output has one entry, so that of several NaN
    none shows by itself. Raises CannotVary."""
    if name in SPECIAL:
        return SPECIAL[name](values, generator)
    odd = name in BY_NAME and BY_NAME[name].odd
    chosen = [i for i, t in enumerate(values) if is_data(t) or (is_complex_data(t) and not odd)]
    if matrices and not chosen and not odd:
        kinds = _matrices(values)
        filled = _filled(name, values, [*kinds], generator)
        return [_again(kinds[i], t) if i in kinds else t for i, t in enumerate(filled)]
    return _filled(name, values, chosen, generator, single)


def _matrices(values: Sequence[object]) -> dict[int, str]:
    """Which inputs are symmetric or triangular matrices of numbers, and which of the two: neither masks, graphs nor distances."""
    found = {}
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or not t.is_floating_point() or 0 < len(few_values(t) or ()) <= MASK_VALUES:
            continue
        of = structure(t)
        distances = of == "symmetric" and not bool(t.diagonal(dim1=-2, dim2=-1).any()) and bool((t >= 0).all())
        if of in ("symmetric", "triangular") and not distances:
            found[i] = "symmetric" if of == "symmetric" else "lower" if bool(t.tril(-1).any()) else "upper"
    return found


def _again(kind: str, new: object) -> object:
    """A changed matrix with the structure that it had."""
    assert isinstance(new, Tensor)
    if kind == "symmetric":
        return like(new, new.tril() + new.tril(-1).mT)
    return like(new, new.tril() if kind == "lower" else new.triu())


def _filled(
    name: str, values: Sequence[object], chosen: list[int], generator: torch.Generator, single: bool = False
) -> list[object]:
    """The inputs that are `chosen` changed, each by itself."""
    odd = name in BY_NAME and BY_NAME[name].odd
    if name in RARE_KINDS:
        return _rare_in(name, values, chosen, generator)
    if name == "steady" and not any(getattr(values[i], "ndim", 0) > 2 for i in chosen):
        raise CannotVary("no input holds sequences")
    if not chosen:
        raise CannotVary("" if name in OTHERS else "no input holds data that may be changed")
    if odd:
        return _with_odd_values(name, values, chosen, generator, single)
    out, change = list(values), CHANGES[name]
    for i in chosen:
        t = values[i]
        assert isinstance(t, Tensor)
        out[i] = like(t, _around_nan(t, lambda of: change(of, generator)))
    return out


def _rolled(values: Sequence[object], generator: torch.Generator) -> list[object]:
    sizes = [t.shape[0] for t in values if isinstance(t, Tensor) and _may_roll(t)]
    if not sizes:
        raise CannotVary("no input has rows")
    by = int(torch.randint(1, max(2, min(sizes)), (1,), generator=generator, device=generator.device))
    return [like(t, t.roll(by, 0)) if isinstance(t, Tensor) and _may_roll(t) else t for t in values]


def _with_odd_values(
    name: str, values: Sequence[object], chosen: list[int], generator: torch.Generator, single: bool
) -> list[object]:
    """NaN or Inf in some of the inputs that are `chosen`, as the variation has it; with `single`, no more than one NaN."""
    vectors = [i for i in chosen[1:] if getattr(values[i], "ndim", 2) < 2]
    if name in OTHERS:
        behind = [i for i in chosen[1:] if getattr(values[i], "ndim", 0) > 1][OTHERS[name] :]
        behind += vectors if name == LATER_INPUT else []
        if not behind:
            raise CannotVary("")
        placed = [(behind[generator.initial_seed() % len(behind) if name == LATER_INPUT else 0], "nan")]
    elif name == "a NaN":
        placed = [(i, "nan") for i in ((chosen[0],) if single else (chosen[0], *vectors, chosen[0]))]
    else:
        placed = [(chosen[0], "inf"), (chosen[-1], "-inf")]
    out = list(values)
    for number, (i, what) in enumerate(placed):
        t = out[i]
        assert isinstance(t, Tensor)
        new = like(t, t)
        at = int(torch.randint(0, t.numel(), (1,), generator=generator, device=generator.device))
        if name == "a NaN" and number == len(placed) - 1:  # at the end, where a kernel has what is left of whole blocks
            at = t.numel() - 1
        new[tuple(int(n) for n in np.unravel_index(at, tuple(t.shape)))] = float(what)
        out[i] = new
    return out


def _around_nan(t: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """`change` of the tensor, or of its real and its imaginary part. NaN that stands for what is missing stays where it is, and
    is 0 for `change`: else sizes, and with them all that is drawn, would be NaN."""
    if t.is_complex():
        return torch.complex(_around_nan(t.real, change).float(), _around_nan(t.imag, change).float())
    missing = t.isnan()
    if not bool(missing.any()):
        return change(t)
    return change(t.masked_fill(missing, 0)).masked_fill(missing, math.nan)


def _may_roll(t: Tensor) -> bool:
    """Whether it has rows, whose order means nothing: sorted integers, where segments begin, say, stay sorted."""
    if not t.dim() or t.shape[0] < 2:
        return False
    if t.is_floating_point() and t.dim() < 3 and has_structure(t) and not adds_up(t):
        return False
    if t.dim() > 1 or t.is_floating_point() or t.is_complex() or t.dtype == torch.bool:
        return True
    steps = t.to(torch.int64).diff()
    return not bool((steps >= 0).all()) or not bool(steps.any())


def _graded(t: Tensor, generator: torch.Generator) -> Tensor:
    steps = torch.randint(-8, 9, t.shape[-1:] if t.dim() else (), generator=generator, device=t.device)
    # Statistics in one pass, of data shifted by their first entry, are honest. Were that the largest of all, they would be 27 u
    # off.
    steps.view(-1)[:1].clamp_(max=0)
    return torch.randn(t.shape, generator=generator, device=t.device) * size_of(t) * torch.exp2(steps.float())


def _tiny_rows(t: Tensor, generator: torch.Generator) -> Tensor:
    """Each row, or each entry of a vector, times a number of its own from 1e-14 to 1e-9."""
    rows = (*t.shape[:-1], 1) if t.dim() > 1 else t.shape
    drawn = torch.rand(rows, generator=generator, device=t.device)
    return t * torch.pow(10.0, -14 + 5 * drawn)


def _planted(t: Tensor, generator: torch.Generator) -> Tensor:
    """One row of 512 is larger, at least one: a row is what the last axis runs over, an entry of a vector."""
    rows = t.shape[:-1] if t.dim() > 1 else t.shape
    count = math.prod(rows)
    larger = torch.randperm(count, generator=generator, device=t.device) < max(1, count // 512)
    by = torch.exp2(2 + 1.6 * torch.rand(count, generator=generator, device=t.device))
    scale = torch.where(larger, by, 1.0).view(rows)
    return t * (scale.unsqueeze(-1) if t.dim() > 1 else scale)


def _rare_in(name: str, values: Sequence[object], chosen: Sequence[int], generator: torch.Generator) -> list[object]:
    """A few rows of each input of data become of other kinds. A row is what the last axis runs over, an entry of a vector; of
    "rare columns" a line along another axis, drawn among those of 8 and more entries. Raises CannotVary, with nothing to report,
    where there are no 8 rows."""
    out = list(values)
    for i in chosen:
        t = values[i]
        assert isinstance(t, Tensor)
        axis = t.dim() - 1
        if name.startswith("rare columns"):
            others = [a for a in range(t.dim() - 1) if t.shape[a] >= SAMPLED]
            if not others:
                continue
            axis = others[int(torch.randint(0, len(others), (1,), generator=generator, device=generator.device))]
        elif t.dim() < 2:
            axis = -1
        if t.numel() // (t.shape[axis] if axis >= 0 else 1) < SAMPLED:
            continue
        out[i] = like(t, _around_nan(t, lambda own, axis=axis: _rare(own, axis, RARE_KINDS[name], generator)))  # type: ignore[misc]
    return changed(out, values)


def _rare(t: Tensor, axis: int, kinds: Sequence[Kind], generator: torch.Generator) -> Tensor:
    """Of the lines of `t` along `axis` (its entries, if that is negative) a few of each of `kinds`, at random places: never a
    multiple of 8."""
    wide = t.movedim(axis, -1) if axis >= 0 else t.unsqueeze(-1)
    rows = wide.reshape(-1, wide.shape[-1]).clone()
    count = len(rows)
    most = max(1, min(max(len(kinds), min(count // RARE, MOST_RARE)), count // SAMPLED))
    places = torch.randperm(count, generator=generator, device=t.device)
    places = places[places % SAMPLED != 0][:most]
    first = int(torch.randint(0, len(kinds), (1,), generator=generator, device=generator.device))
    size = size_of(t)
    for number, place in enumerate(places.tolist()):
        row = rows[place]
        rows[place] = kinds[(first + number) % len(kinds)](row, size, generator).to(row.dtype)
    made = rows.view(wide.shape)
    return made.movedim(-1, axis) if axis >= 0 else made.squeeze(-1)


def _both_signs(row: Tensor, size: float, generator: torch.Generator) -> Tensor:
    return torch.randn(row.shape, generator=generator, device=row.device) * size


def _one_large(row: Tensor, size: float, generator: torch.Generator) -> Tensor:
    """One entry 64 times as large as is usual, of the sign that it has."""
    new = row.clone()
    at = int(torch.randint(0, len(row), (1,), generator=generator, device=generator.device))
    new[at] = 64 * size if float(row[at]) >= 0 else -64 * size
    return new


def _below(row: Tensor, size: float, generator: torch.Generator) -> Tensor:
    return -row.abs() - size / 64


def _far_from_zero(row: Tensor, size: float, generator: torch.Generator) -> Tensor:
    return 10 * size + _both_signs(row, size, generator)


def _equal(row: Tensor, size: float, generator: torch.Generator) -> Tensor:
    return torch.full_like(row, 0.5)


def _times(by: float) -> Kind:
    return lambda row, size, generator: row * by


# By a variation's name.
RARE_KINDS: dict[str, tuple[Kind, ...]] = {
    "rare large rows": (_times(1e5),),
    "rare rows times 100": (_times(100.0),),
    "rare small rows": (_times(0.0), _times(1e-3), _times(1e-7)),
    "rare rows times 0.001": (_times(1e-3), _times(1e-7)),
    "rare odd rows": (_below, _both_signs, _far_from_zero, _equal, _one_large),
    "rare equal rows": (_equal, _one_large),
    "rare columns": (_times(100.0), _times(1e-3), _below, _both_signs),
    "rare columns of one sign": (_times(100.0), _times(1e-3)),
}


def _mixed(t: Tensor, generator: torch.Generator) -> Tensor:
    """Each row with a sign and a size of its own, some rows of both signs."""
    rows = (t.shape[0],) + (1,) * (t.dim() - 1) if t.dim() else ()
    sign = torch.randint(0, 2, rows, generator=generator, device=t.device) * 2 - 1
    size = torch.exp2(torch.randint(-3, 4, rows, generator=generator, device=t.device).float())
    both = torch.rand(rows, generator=generator, device=t.device) < 0.5
    normal = torch.randn(t.shape, generator=generator, device=t.device) * size_of(t)
    return torch.where(both, normal, t.float() * sign) * size


def _axis_of_rows(t: Tensor) -> int | None:
    """The first axis that is longer than one, whose entries are a tensor's rows."""
    return next((i for i, size in enumerate(t.shape) if size > 1), None)


def _numbers(t: Tensor, generator: torch.Generator) -> Tensor:
    """A number for each row, from 0 on, in an order at random; of so many axes as `t`."""
    shape, axis = [1] * t.dim(), _axis_of_rows(t)
    if axis is None:
        return torch.zeros(shape, dtype=torch.int64, device=t.device)
    shape[axis] = t.shape[axis]
    return torch.randperm(t.shape[axis], generator=generator, device=t.device).view(shape)


def _kinds(t: Tensor, kinds: int, generator: torch.Generator) -> Tensor:
    """A number below `kinds` for each row, as many of each."""
    return _numbers(t, generator) % kinds


def _distinct(t: Tensor, generator: torch.Generator) -> Tensor:
    """Multiples of 2^-22, each once."""
    if t.numel() > MOST_DISTINCT or t.dtype not in (torch.float32, torch.float64):
        raise CannotVary("")
    order = torch.randperm(t.numel(), generator=generator, device=t.device).view(t.shape)
    return 1 + (order - t.numel() // 2) * 2.0**-22


def _odd_rows(t: Tensor, generator: torch.Generator) -> Tensor:
    """A third of the rows below zero; a third in order; of the others one entry of a power of two, another in each, is large."""
    length = t.shape[-1] if t.dim() else 1
    below, ordered = -t.abs() - size_of(t) / 64, t.sort(-1).values
    strides = [2**i for i in range(2, 24) if 2**i * LEAST_STRIDES <= length]
    if not strides:
        return torch.where(_kinds(t, 2, generator) == 0, below, ordered)
    number = _numbers(t, generator)
    stride = torch.tensor(strides[::-1], device=t.device)[number // 3 % len(strides)]
    large = torch.arange(length, device=t.device) % stride == stride // 3
    at_stride = torch.where(large, t.abs() + 4 * size_of(t), t)
    return torch.where(number % 3 == 0, below, torch.where(number % 3 == 1, ordered, at_stride))


def _clustered(t: Tensor, generator: torch.Generator) -> Tensor:
    """Each row one of its own rows, of one in six, but for a 256th to a 32nd of the usual size."""
    axis = _axis_of_rows(t)
    if axis is None:
        return t
    count = t.shape[axis]
    some = torch.randint(0, max(1, count // 6), (count,), generator=generator, device=t.device)
    shape = [count if i == axis else 1 for i in range(t.dim())]
    apart = torch.exp2(-8 + 3 * torch.rand(count, generator=generator, device=t.device)).view(shape) * size_of(t)
    return t.index_select(axis, some) + apart * torch.randn(t.shape, generator=generator, device=t.device)


def _opposed(t: Tensor, generator: torch.Generator) -> Tensor:
    """All rows one of them, but for a sixteenth of the usual size, and one of these its opposite."""
    axis = _axis_of_rows(t)
    if axis is None:
        return t
    count = t.shape[axis]
    signs = torch.ones(count, dtype=t.dtype, device=t.device)
    signs[int(torch.randint(0, count, (1,), generator=generator, device=t.device))] = -1
    near = torch.randn(t.shape, generator=generator, device=t.device) * size_of(t) / 16
    return signs.view([count if i == axis else 1 for i in range(t.dim())]) * (t.narrow(axis, 0, 1) + near)


def _huge_rows(t: Tensor, generator: torch.Generator) -> Tensor:
    """A third of the rows around -HUGE, a third around HUGE."""
    kind = _kinds(t, 3, generator)
    huge = HUGE * (1 + torch.rand(t.shape, generator=generator, device=t.device))
    return torch.where(kind == 0, -huge, torch.where(kind == 1, huge, t.float()))


def aligned(values: Sequence[object], generator: torch.Generator, weights: Sequence[Tensor]) -> list[object]:
    """Of data a third of the rows become the signs of a row of one of the `weights`, or of a column, of as many entries, FAR
    times the largest entry; half of them of the one whose sum is the largest. Raises CannotVary, with nothing to report."""
    out = list(values)
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or not is_data(t) or t.dim() < 2:
            continue
        others = (w for w in weights if w.dim() == 2 and t.shape[-1] in w.shape and w.data_ptr() != t.data_ptr())
        fitting = [w if w.shape[-1] == t.shape[-1] else w.T for w in others]
        if not fitting:
            continue
        w = fitting[int(torch.randint(0, len(fitting), (1,), generator=generator, device=t.device))].to(t.device)
        places = torch.randint(0, w.shape[0], t.shape[:-1], generator=generator, device=t.device)
        heaviest = w.detach().abs().sum(1, dtype=torch.float64).argmax()
        places = torch.where(places % 2 == 0, heaviest, places)
        signs = torch.where(w < 0, -1.0, 1.0)[places]
        largest = t.detach().abs().nan_to_num(nan=0.0, posinf=0.0).amax()
        out[i] = like(t, torch.where(few(t[..., :1], 3, generator), signs * (FAR * largest), t))
    return changed(out, values)


def on_edges(values: Sequence[object], generator: torch.Generator, edges: Tensor) -> list[object]:
    """A quarter of the entries of data become one of `edges` (a vector) each. Raises CannotVary, with nothing to report."""
    out = list(values)
    for i, t in enumerate(values):
        if isinstance(t, Tensor) and is_data(t) and edges.numel():
            places = torch.randint(0, edges.numel(), t.shape, generator=generator, device=t.device)
            out[i] = like(t, torch.where(few(t, 4, generator), edges[places].to(t.dtype), t))
    return changed(out, values)


def within(own: Tensor, new: Tensor) -> Tensor:
    """`new` as numbers from 0 to 1, its least 0 and its largest 1 where any lies outside; `own` where it holds NaN or Inf."""
    if not bool(new.isfinite().all()):
        return own
    wide = new.double()
    low, high = wide.amin(), wide.amax()
    if bool(low >= 0) and bool(high <= 1):
        return new
    return like(own, (wide - low) / (high - low)) if bool(high > low) else torch.full_like(own, 0.5)


def on_ends(values: Sequence[object], generator: torch.Generator, limited: Collection[int]) -> list[object]:
    """An eighth of the entries of data that are `limited` to numbers from 0 to 1 become 0, an eighth 1, an eighth 2^-20 to 2^-60
    and an eighth 1 - 2^-24 to 1 - 2^-12, in each input by itself. Raises CannotVary, with nothing to report."""
    out = list(values)
    for i in sorted(limited):
        t = values[i]
        if not is_data(t):
            continue
        assert isinstance(t, Tensor)
        kind = torch.randint(0, 8, t.shape, generator=generator, device=t.device)
        far = torch.rand(t.shape, generator=generator, device=t.device)
        new = t.float()
        ends = torch.zeros_like(far), torch.ones_like(far), torch.exp2(-20 - 40 * far), 1 - torch.exp2(-24 + 12 * far)
        for number, end in enumerate(ends):
            new = torch.where(kind == number, end, new)
        out[i] = like(t, new)
    return changed(out, values)


def _equal_neighbours(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Of rows in order, two entries of five take the value of the one before, among them the second and the last."""
    out = list(values)
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or not t.is_floating_point() or structure(t) != "in order":
            continue
        equal = torch.rand(t.shape, generator=generator, device=t.device) < 0.4
        equal[..., 0], equal[..., 1], equal[..., -1] = False, True, True
        places = torch.arange(t.shape[-1], device=t.device).expand(t.shape)
        out[i] = like(t, t.gather(-1, torch.where(equal, 0, places).cummax(-1).values))
    return changed(out, values)


def _missing(values: Sequence[object], generator: torch.Generator, least: int = 0) -> list[object]:
    """Of inputs that hold NaN, a fifth of the rows with so many values as `least`, with one and with two more, with all, and as
    they are. A row is what the last axis runs over."""
    out = list(values)
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or not t.is_floating_point() or t.dim() < 2 or t.shape[-1] < 4:
            continue
        if not bool(t.isnan().any()):
            continue
        given = t.nan_to_num(0.0, math.inf, -math.inf)
        drawn = torch.randn(t.shape, generator=generator, device=t.device) * size_of(given)
        whole = torch.where(t.isnan(), drawn.to(t.dtype), t)
        count = math.prod(t.shape[:-1])
        kind = torch.randperm(count, generator=generator, device=t.device).view(*t.shape[:-1], 1) % 5
        rank = torch.rand(t.shape, generator=generator, device=t.device).argsort(-1).argsort(-1)
        new = torch.where(kind < 3, whole.masked_fill(rank >= least + kind, math.nan), torch.where(kind == 3, whole, t))
        out[i] = like(t, new)
    return changed(out, values)


def _alike_inputs(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Data that have the shape and the type of data before them become these, half of the rows but for a millionth of the usual
    size. Raises CannotVary, with nothing to report."""
    out = list(values)
    first: dict[object, Tensor] = {}
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or not is_data(t) or not t.dim():
            continue
        other = first.setdefault((t.shape, t.dtype), t)
        if other is not t:
            near = other + 1e-6 * size_of(other) * torch.randn(t.shape, generator=generator, device=t.device)
            out[i] = like(t, torch.where(_kinds(t, 2, generator) == 0, other, near.to(t.dtype)))
    return changed(out, values)


def alike(values: Sequence[object]) -> list[int]:
    """The inputs of integers that are of the type and the shape of one before them."""
    kinds = [
        (t.dtype, t.shape) if isinstance(t, Tensor) and t.dtype in WIDEST and t.numel() >= LEAST else None
        for t in values
    ]
    return [i for i, kind in enumerate(kinds) if kind is not None and kind in kinds[:i]]


def of_another_draw(values: Sequence[object], other: Sequence[object], generator: torch.Generator) -> list[object]:
    """Those that are `alike` become those of `other`, which get_inputs made by another seed; but every second row is its own one,
    rolled along the last axis by up to half of it, unless rows are in order or padded. Raises CannotVary, with nothing to
    report."""
    out = list(values)
    for i in alike(values):
        t, new = values[i], other[i] if i < len(other) else None
        assert isinstance(t, Tensor)
        if not isinstance(new, Tensor) or (new.dtype, new.shape) != (t.dtype, t.shape):
            continue
        new = new.to(t.device)
        steps = t.diff(dim=-1)
        if (
            t.dim() > 1
            and t.shape[-1] >= ORDERED
            and not regrouped.belongs_together(t, False)
            and bool((steps < 0).any(-1).all())
        ):
            by = int(torch.randint(t.shape[-1] // 8, t.shape[-1] // 2 + 1, (1,), generator=generator, device=t.device))
            new = torch.where(_kinds(t, 2, generator) == 0, new, t.roll(by, -1))
        if not torch.equal(new, t):
            out[i] = like(t, new)
    return changed(out, values)


def _steady(t: Tensor, generator: torch.Generator) -> Tensor:
    row = torch.randn(t.shape[-1:], generator=generator, device=t.device) * (16 * size_of(t))
    return row.expand(t.shape)


def _flipped(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Masks and weights that get_inputs makes all ones or all zeros, and integers that it makes all the same, are inputs for all
    that: some entries become the other, or smaller."""
    out = list(values)
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or t.numel() < LEAST or t.is_complex():
            continue
        first = t.reshape(-1)[0]
        if not bool((t == first).all()):
            continue
        whole = not t.is_floating_point() and t.dtype != torch.bool
        if whole and int(first) > 1:  # lengths, say, that are all the longest
            smaller = torch.randint(1, int(first), t.shape, generator=generator, device=t.device)
            out[i] = like(t, torch.where(few(t, 4, generator), smaller, t))
        elif bool((first == 0) | (first == 1)):
            made = t.to(torch.int64) if whole else t.float()
            out[i] = like(t, torch.where(few(t, 16, generator), 1 - made, made))
    if all(new is old for new, old in zip(out, values, strict=True)):
        raise CannotVary("no input is all ones, all zeros or one integer")
    return out


def _fractions(values: Sequence[object], generator: torch.Generator, signs: bool = True) -> list[object]:
    """Inputs of floating point that get_inputs makes all one number are weights as often as masks: other sizes, from a quarter to
    twice it, and with `signs` a quarter of them negative; zeros become numbers up to 1. An input of more values than one is left
    alone: a kernel may well read ones and zeros, or labels, as what they are."""
    out = list(values)
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or not t.is_floating_point() or t.numel() < LEAST or is_data(t):
            continue
        first = t.reshape(-1)[0]
        if not bool((t == first).all()) or not bool(first.isfinite()):
            continue
        size = torch.exp2(3 * torch.rand(t.shape, generator=generator, device=t.device) - 2)
        sign = 1 - 2 * few(t, 4, generator).float() if signs else 1.0
        out[i] = like(t, size * sign * (first if float(first) else 0.5))
    return changed(out, values)


def near(values: Sequence[object], generator: torch.Generator, one: bool, length: int = 0) -> list[object]:
    """Data whose products over `length` entries (or the longest axis), of them or of 1 less them, neither vanish nor overflow."""
    out = list(values)
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or not is_data(t):
            continue
        spread = min(1.0, SPREAD / max(1, length or max(t.shape, default=1)) ** 0.5)
        drawn = 2 * torch.rand(t.shape, generator=generator, device=t.device) - 1
        sign = 1 - 2 * torch.randint(0, 2, t.shape, generator=generator, device=t.device)
        out[i] = like(t, sign * torch.exp2(spread * drawn) if one else spread / 2 * drawn)
    return changed(out, values)


def _distributions(values: Sequence[object], generator: torch.Generator, zeros: bool = True) -> list[object]:
    """Other rows that add up to one: peaked, uniform, at random, and with `zeros` rows half of which are zeros, and rows of which
    one entry is all. What is all zeros and ones, labels say, stays so."""
    out = list(values)
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or not t.is_floating_point() or not t.numel() or not t.dim() or t.shape[-1] < 2:
            continue
        axis = axis_of_sums(t)
        if axis is None or bool(((t == 0) | (t == 1)).all()):
            continue
        wide = t.movedim(axis, -1)
        scores = torch.randn(wide.shape, generator=generator, device=t.device, dtype=torch.float64)
        kind = torch.randperm(wide[..., 0].numel(), generator=generator, device=t.device)
        kind = kind.view(wide.shape[:-1]).unsqueeze(-1)
        kind = kind % KINDS if zeros else 2 + kind % (KINDS - 2)
        least = scores.argsort(-1).argsort(-1) < (wide.shape[-1] // 2)
        only = scores < scores.amax(-1, keepdim=True)
        scores = torch.where(kind == 2, PEAKED * scores, torch.where(kind == 3, 0.0, scores))
        scores = scores.masked_fill(((kind == 0) & least) | ((kind == 1) & only), -math.inf)
        out[i] = like(t, torch.softmax(scores, -1).movedim(-1, axis))
    return changed(out, values)


def _square_matrices(values: Sequence[object]) -> Iterator[tuple[int, Tensor]]:
    """Those inputs that hold square matrices of floating point, neither tiny nor too large to be taken apart."""
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or not t.is_floating_point() or t.dim() < 2 or t.shape[-1] != t.shape[-2]:
            continue
        if 3 <= t.shape[-1] <= CORNER and t.numel() <= LOOKED_AT:
            yield i, t


def _of_spectrum(vectors: Tensor, sizes: Tensor) -> Tensor:
    """The symmetric matrices with these eigenvectors and eigenvalues."""
    new = (vectors * sizes.unsqueeze(-2)) @ vectors.mT
    return (new + new.mT) / 2


def _conditioned(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Matrices that are positive definite, with their own eigenvectors and a spectrum of another condition."""
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
    """With others in place of symmetric and triangular matrices: what `change` makes of them in float64, by their structure.
    Those of few values, such as graphs, count with `masks` if they are symmetric; triangular ones say who may see whom."""
    out = list(values)
    for i, t in _square_matrices(values):
        of = structure(t)
        is_mask = 0 < len(few_values(t) or ()) <= MASK_VALUES
        if of not in ("symmetric", "triangular") or (is_mask and not (masks and of == "symmetric")):
            continue
        if bool(t.isfinite().all()):
            out[i] = like(t, change(t.detach().double(), of))
    return changed(out, values)


def _isolated(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Of symmetric matrices some rows and columns, of triangular ones some rows, are zeros, but for the diagonal if all of that
    is positive."""

    def change(t: Tensor, of: str) -> Tensor:
        chosen = few(t[..., 0], max(2, t.shape[-1] // 2), generator).unsqueeze(-1)
        gone = chosen | chosen.mT if of == "symmetric" else chosen.expand(t.shape)
        if bool((t.diagonal(dim1=-2, dim2=-1) > 0).all()):
            gone = gone & ~torch.eye(t.shape[-1], dtype=torch.bool, device=t.device)
        return t.masked_fill(gone, 0.0)

    return _structured(values, change, masks=True)


def _indefinite(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Symmetric matrices of whose eigenvalues every second one, the largest among them, is the negative of what it was; of
    triangular ones every second row is."""

    def change(t: Tensor, of: str) -> Tensor:
        signs = torch.where(torch.arange(t.shape[-1], device=t.device).flip(0) % 2 == 0, -1.0, 1.0).double()
        if of == "triangular":
            return t * signs.unsqueeze(-1)
        sizes, vectors = torch.linalg.eigh(t)
        return _of_spectrum(vectors, sizes * signs)

    return _structured(values, change)


def _isotropic(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Of several symmetric or triangular matrices a third are multiples of the identity; a single one is."""

    def change(t: Tensor, of: str) -> Tensor:
        sizes = t.diagonal(dim1=-2, dim2=-1).abs().mean(-1)[..., None, None].clamp(min=size_of(t) / 16)
        new = sizes * torch.eye(t.shape[-1], dtype=t.dtype, device=t.device)
        several = t.dim() > 2 and t[..., 0, 0].numel() > 1
        return torch.where(few(t[..., 0, 0], 3, generator)[..., None, None], new, t) if several else new

    return _structured(values, change)


def _wide_integers(values: Sequence[object], generator: torch.Generator, products: bool = True) -> list[object]:
    """Integers of all sizes that sums as long as the longest axis hold, of `products` or of themselves: below 2^52 of int64,
    which float64 holds too."""
    out = list(values)
    if any(not isinstance(t, Tensor) or t.dtype not in WIDEST for t in values):
        raise CannotVary("")
    longest = max((max(t.shape, default=1) for t in values if isinstance(t, Tensor)), default=1)
    for i, t in enumerate(values):
        assert isinstance(t, Tensor)
        most = 2 ** WIDEST[t.dtype] // max(1, longest)
        most = max(1, math.isqrt(most) if products else most)
        drawn = torch.randint(-most, most + 1, t.shape, generator=generator, device=t.device)
        out[i] = like(t, drawn.clamp_(torch.iinfo(t.dtype).min, torch.iinfo(t.dtype).max))
    return changed(out, values)


def _normal(t: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(t.shape, generator=generator, device=t.device)


# Of one input that holds data by itself.
CHANGES: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "zero-mean": lambda t, generator: _normal(t, generator) * size_of(t),
    "planted": _planted,
    "negated": lambda t, _: -t,
    "times 100": lambda t, _: t * 100,
    "times 1000": lambda t, _: t * 1e3,
    "times 10000": lambda t, _: t * 1e4,
    "times 100000": lambda t, _: t * 1e5,
    "times 0.001": lambda t, _: t * 1e-3,
    "times 1e-7": lambda t, _: t * 1e-7,
    "tiny rows": _tiny_rows,
    "moderate": lambda t, generator: -4 - 8 * torch.rand(t.shape, generator=generator, device=t.device),
    "offset": lambda t, generator: size_of(t) * (10 + _normal(t, generator)),
    "graded": _graded,
    "close": lambda t, generator: 1 + 2.0**-10 * _normal(t, generator),
    "distinct": _distinct,
    "constant": lambda t, _: torch.full_like(t, 0.5),
    "zero rows": lambda t, generator: torch.where(_kinds(t, 3, generator) == 0, 0, t),
    "odd rows": _odd_rows,
    "clustered": _clustered,
    "opposed": _opposed,
    "huge rows": _huge_rows,
    "far below": lambda t, _: (t.abs() + size_of(t)) * -1e5,
    "steady": _steady,
    MIXED: _mixed,
}
# Of all inputs together.
SPECIAL: dict[str, Callable[[Sequence[object], torch.Generator], list[object]]] = {
    "rolled": _rolled,
    "alike inputs": _alike_inputs,
    "ones and zeros": _flipped,
    "near one": partial(near, one=True),
    "near zero": partial(near, one=False),
    "fractions": _fractions,
    "fractions of one sign": partial(_fractions, signs=False),
    "conditioned": _conditioned,
    "isolated": _isolated,
    "indefinite": _indefinite,
    "isotropic": _isotropic,
    "other integers": regrouped.replaced,
    "integers in other places": partial(regrouped.replaced, exchange=True),
    "repeated integers": regrouped.repeated,
    "narrow integers": regrouped.narrowed,
    "zeros among integers": regrouped.with_zeros,
    "sorted integers": regrouped.in_order,
    "integers sorted along one axis": partial(regrouped.in_order, both=False),
    "uneven steps": regrouped.uneven,
    "boolean rows": regrouped.boolean_rows,
    "boolean rows but for one": partial(regrouped.boolean_rows, whole=False),
    "chained": chains.chained,
    "stepping": chains.stepping,
    "relabelled": regrouped.relabelled,
    "wide integers": _wide_integers,
    "wide sums": partial(_wide_integers, products=False),  # "wide integers" of a model without products
    "equal neighbours": _equal_neighbours,
    "missing values": _missing,
    "missing but one": partial(_missing, least=1),
    "missing but two": partial(_missing, least=2),
    "distributions": _distributions,
    "distributions without zeros": partial(_distributions, zeros=False),
}
