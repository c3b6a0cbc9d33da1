"""Other data for any model, made from its own: the same shapes and kinds of values, but of other signs, sizes and places.

What is a mask, a label, an index or a distribution stays one. Where the reference has no finite answer for the new
data, or fails on them, the variation does not apply: the reference's process tries it first. Runs in the reference's process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor


@dataclass(frozen=True)
class Variation:
    """`odd`: NaN or Inf belong to it. `state`: it changes parameters. `outside`: its values may leave [0, 1].
    `few`: only for outputs of few numbers, in which the errors of many entries average out. `ties`: entries are equal in it,
    so that an integer output, such as the place of the largest, may be any of several. `equal`: numbers that are equal, or
    small beside a few, are added up, and all rounded the same way. `isolating`: data of isolating.py. `milder`: names of
    those that stand in, in turn, where the reference has no finite answer for it or rounding decides what it is. `extreme`:
    on these data honest arithmetic may be hundreds of times as far off as the reference. `spreads`: a NaN may stand wherever
    the output does not depend on the entry that is NaN: a mask of -Inf that is added hides nothing. `larger`: values grow by
    it. `rare`: few rows are of another kind, and each row of the output is judged by itself."""

    name: str
    asks: str
    odd: bool = False
    state: bool = False
    outside: bool = True
    few: bool = False
    places: bool = False
    ties: bool = False
    equal: bool = False
    isolating: bool = False
    milder: tuple[str, ...] = ()
    extreme: bool = False
    spreads: bool = False
    larger: bool = False
    rare: bool = False


VARIATIONS = (
    Variation("zero-mean", "data of both signs: what hides in large sums, or behind positive data, shows"),
    Variation(
        "parameters",
        "other parameters: a weight of ones or a bias of zeros cannot be left out, nor that some weights are negative",
        state=True,
        outside=False,
        milder=("parameters of one sign",),
    ),
    Variation(
        "planted",
        "its own data, but for a few rows that are 4 to 12 times as large: what is left out because it is mostly small shows",
    ),
    Variation(
        "rare large rows",
        "its own data, but for a few rows that are 100000 times as large: what looks at a sample of rows misses them",
        milder=("rare rows times 100",),
        equal=True,
        rare=True,
    ),
    Variation(
        "rare small rows",
        "its own data, but for a few rows of zeros, or a thousandth or 1e-7 as large: what looks at a sample misses them",
        outside=False,
        ties=True,
        equal=True,
        milder=("rare rows times 0.001",),
        rare=True,
    ),
    Variation(
        "rare odd rows",
        "its own data, but for a few rows that are below zero, of both signs, far from zero, equal or of one large entry",
        ties=True,
        equal=True,
        milder=("rare equal rows",),
        rare=True,
    ),
    Variation(
        "rare columns",
        "its own data, but for a few lines along another axis that are larger, smaller, below zero, or of both signs",
        ties=True,
        milder=("rare columns of one sign",),
        equal=True,
        rare=True,
    ),
    Variation(
        "large parameters",
        "parameters 8 times as large, and zeros up to 4 of either sign: what is left out as small, or overflows, shows",
        state=True,
        outside=False,
        milder=("parameters times 4", "parameters times 2"),
    ),
    Variation(
        "small parameters",
        "parameters and buffers a thousandth as large: an epsilon beside them that is wrong or left out shows",
        state=True,
        outside=False,
        equal=True,
    ),
    Variation(
        "integer buffers",
        "buffers of integers and truth values: an order, a mask or zero points cannot be left out",
        state=True,
        outside=False,
    ),
    Variation(
        "plain tensors",
        "tensors of ones or zeros that are neither parameters nor buffers: they cannot be left out",
        state=True,
        outside=False,
    ),
    Variation("negated", "the signs turned"),
    Variation(
        "times 100",
        "large values: exponentials overflow unless their maximum is subtracted, as does fp16",
        larger=True,
    ),
    Variation(
        "times 100000",
        "values beyond 65504, the largest of fp16: statistics of an fp16 copy are infinite",
        milder=("times 10000", "times 1000"),
        larger=True,
    ),
    Variation(
        "near one", "sizes around 1, of either sign: long products keep a size, so that what is left out of them shows"
    ),
    Variation("near zero", "around 0, of either sign: long products of 1 - x keep a size"),
    Variation("times 0.001", "small values: an epsilon that is wrong or left out shows", outside=False, equal=True),
    Variation("times 1e-7", "tiny values: an epsilon that is wrong shows, and fp16's range", outside=False, equal=True),
    Variation(
        "moderate",
        "values from -12 to -4: what is small beside 1 in an exponential must still be accurate",
        ties=True,
    ),
    Variation("offset", "values around ten times their spread: a mean taken for zero shows", larger=True),
    Variation("graded", "entries from 2^-8 to 2^8: small ones must be as accurate as large ones"),
    Variation("close", "entries around 1 that differ by a thousandth: their low bits carry the answer", few=True),
    Variation("distinct", "entries around 1, no two alike: their low bits decide which is the largest", places=True),
    Variation(
        "conditioned", "positive definite matrices of condition 64: iterations that end early show", outside=False
    ),
    Variation("wide integers", "integers as large as sums leave room for, where all inputs are integers"),
    Variation(
        "distributions",
        "of rows that add up to one: one of them all, half of them zeros, peaked, uniform: a missing case for 0 shows",
        outside=False,
        ties=True,
        equal=True,
    ),
    Variation(
        "distributions without zeros",
        "of rows that add up to one: peaked ones, with entries near 0 and near 1: an epsilon shows",
        outside=False,
        ties=True,
        equal=True,
    ),
    Variation(
        "other integers",
        "of integers that get_inputs makes the same each time, some others: what is remembered of them shows",
        outside=False,
        milder=("integers in other places",),
    ),
    Variation(
        "repeated integers",
        "of integers, most of some rows the same: what takes collisions, or full groups, for rare shows",
        outside=False,
        ties=True,
        equal=True,
    ),
    Variation(
        "sorted integers",
        "integers and truth values in order along their axes: what takes them for scattered shows",
        outside=False,
        milder=("integers sorted along one axis",),
    ),
    Variation(
        "truth rows",
        "of truth values, rows that are all true, all false, or so but for one: what takes them for mixed shows",
        outside=False,
        ties=True,
        milder=("truth rows but for one",),
    ),
    Variation(
        "relabelled",
        "symmetric matrices with rows and columns in another order: a band, or blocks, that are taken for granted show",
        outside=False,
    ),
    Variation("rolled", "rows in another order: answers remembered by place show", outside=False),
    Variation("constant", "every entry the same", outside=False, ties=True, equal=True),
    Variation("zero rows", "a third of the rows zeros: a missing epsilon shows", ties=True, equal=True),
    Variation(
        "odd rows",
        "rows below zero, in order, or with their largest entries at a stride: a maximum that starts at zero and a choice by "
        "pieces show",
    ),
    Variation(
        "clustered",
        "rows that are nearly copies of a few: what takes neighbours for rare shows",
        ties=True,
    ),
    Variation(
        "edges",
        "entries equal to numbers that the model compares with, in an operator or a buffer: the wrong side shows",
        outside=False,
    ),
    Variation(
        "ends",
        "of values from 0 to 1, some 0, some 1, and some close to these: a logarithm without a bound shows",
        outside=False,
    ),
    Variation(
        "equal neighbours",
        "of rows in order, some entries equal to the one before: a difference without a guard and a missing case for ties show",
        outside=False,
        ties=True,
    ),
    Variation(
        "missing values",
        "of inputs that hold NaN for what is missing, rows without a value, with one, with two, and with all",
        outside=False,
        ties=True,
        milder=("missing but one", "missing but two"),
    ),
    Variation(
        "another draw",
        "of integers in inputs of one shape, rows of another call of get_inputs, or moved: what they share must not matter",
        outside=False,
    ),
    Variation("far below", "nothing above -65504: a maximum that starts at some negative number shows", ties=True),
    Variation(
        "steady",
        "large values, the same at every step of a sequence: what is remembered for long shows",
        ties=True,
        equal=True,
    ),
    Variation(
        "ones and zeros",
        "of an input that is all ones, all zeros or one integer, some entries others",
        outside=False,
    ),
    Variation(
        "fractions",
        "of an input that is all one number, other numbers of both signs: weights that are taken for a mask show",
        milder=("fractions of one sign",),
    ),
    Variation(
        "a NaN",
        "NaN in an input, at its end, and in vectors: they must appear where the reference has them",
        odd=True,
        ties=True,
    ),
    *(
        Variation(name, "NaN in an input: it must appear where the reference has it", odd=True, ties=True, spreads=True)
        for name in ("a NaN in another input", "a NaN in a third input", "a NaN in a later input")
    ),
    Variation("an Inf", "one Inf and one -Inf: they must lead to what the reference makes of them", odd=True),
)
MILDER = {
    variation.name: variation
    for variation in (
        Variation(
            "parameters of one sign", "other parameters, none of them negative that was not", state=True, outside=False
        ),
        Variation(
            "integers in other places",
            "of integers that get_inputs makes the same each time, some in other places: what is remembered of them shows",
            outside=False,
        ),
        Variation(
            "integers sorted along one axis",
            "integers and truth values in order along one axis: what takes them for scattered shows",
            outside=False,
        ),
        Variation(
            "truth rows but for one",
            "of truth values, rows that are all true or all false but for one: what takes them for mixed shows",
            outside=False,
            ties=True,
        ),
        Variation("fractions of one sign", "of an input that is all one number, other numbers of its sign"),
        Variation(
            "rare rows times 100",
            "its own data, but for a few rows that are 100 times as large: what looks at a sample of rows misses them",
            equal=True,
            rare=True,
        ),
        Variation(
            "rare rows times 0.001",
            "its own data, but for a few rows, a thousandth as large: what looks at a sample of rows misses them",
            outside=False,
            equal=True,
            rare=True,
        ),
        Variation(
            "rare equal rows",
            "its own data, but for a few rows that are equal, or of one large entry: what looks at a sample misses them",
            ties=True,
            equal=True,
            rare=True,
        ),
        Variation(
            "rare columns of one sign",
            "its own data, but for a few lines along another axis that are larger or smaller",
            equal=True,
            rare=True,
        ),
        *(
            Variation(
                f"missing but {least}",
                f"of inputs that hold NaN for what is missing, rows with {least} value{'s' * (least != 'one')}, and with all",
                outside=False,
                ties=True,
            )
            for least in ("one", "two")
        ),
        *(
            Variation(
                f"parameters times {by}",
                f"parameters {by} times as large, and zeros up to {by / 2:g} of either sign: what is left out as small shows",
                state=True,
                outside=False,
            )
            for by in (4, 2)
        ),
        *(
            Variation(
                f"times {by}",
                "very large values: a mask of -10000 or another large number in place of -Inf shows",
                extreme=True,
                larger=True,
            )
            for by in (10000, 1000)
        ),
    )
}
BY_NAME = {variation.name: variation for variation in (*VARIATIONS, *MILDER.values())}
# Which of the inputs that are no vectors, behind the first; the last of these takes one at random from there on.
OTHERS = {"a NaN in another input": 0, "a NaN in a third input": 1, "a NaN in a later input": 2}
SPREAD = 4.0  # of the logarithm of a product of numbers near 1
MIXED = "mixed"  # every row by another one of the variations: the data of one trial
SAMPLE = 4096
FEW_VALUES, NAMED = 16, 4  # of an input that is a mask, labels or levels; and how many are named one by one
MOST_DISTINCT = 1 << 22  # numbers from 1/2 to 3/2 that are no two alike
LEAST_STRIDES = 12  # entries of a row at a stride: a choice by pieces has fewer from each
ORDERED = 8  # entries of a row that are in order by no chance
# Entries of a tensor whose structure is looked for, rows and columns of a matrix, and rows of one that may be orthogonal.
LOOKED_AT, CORNER, SQUARE = 1 << 22, 1024, 2048
LEAST = 4  # entries of an input that may be all one number by no chance
KINDS, PEAKED = 5, 8.0  # of rows that add up to one; how many times as large the scores of peaked ones are
CONDITION = 6  # log2 of that of positive definite matrices
RARE, MOST_RARE = (
    64,
    2,
)  # of so many rows one is of another kind, and one of each kind or two: the fewer, the fewer looks meet one
SAMPLED = 8  # rows of a multiple of this number stay as they are: they are what is looked at
BLOCK = 2  # changes along a row of truth values that are one block
MOSTLY = 0.9  # of a row's integers become one number
MOVED, END = 64, 8  # of a row: one entry in so many becomes another, and none in so small a part at either end
NO_PARAMETERS = "it has no parameters"
WIDEST = {torch.int64: 52, torch.int32: 30, torch.int16: 30, torch.int8: 30}  # bits of the sums of "wide integers"

# Another row, made of (a row, the usual size of entries).
Kind = Callable[[Tensor, float, torch.Generator], Tensor]


class CannotVary(Exception):
    """The variation has nothing to change; the message says why."""


def is_data(t: object) -> bool:
    """Whether a tensor holds data that may be changed: floating point, no mask or label, no distribution."""
    if not isinstance(t, Tensor) or not t.is_floating_point() or t.numel() == 0:
        return False
    some = sampled(t).double()
    if t.numel() > 16 and torch.unique(some).numel() <= max(3, min(16, some.numel() // 64)):
        return False  # few values: a mask, labels, a one-hot matrix
    return not has_structure(t)


def sampled(t: Tensor) -> Tensor:
    """Some entries, from all of the tensor: its beginning may be padding."""
    flat = t.detach().reshape(-1)
    return flat[:: max(1, -(-flat.numel() // SAMPLE))]


def few_values(t: Tensor) -> set[float] | None:
    """The values of an input of few; None where there are more than FEW_VALUES, or any is not finite."""
    flat = t.detach().reshape(-1)
    found = {float(x) for x in torch.unique(flat[:SAMPLE])}
    while len(found) <= FEW_VALUES:
        others = torch.ones_like(flat, dtype=torch.bool)
        for x in found:
            others &= flat != x
        if not bool(others.any()):
            return found if all(map(math.isfinite, found)) else None
        found.add(float(flat[int(others.to(torch.uint8).argmax())]))
        if any(x != x for x in found):
            return None
    return None


def in_words(values: set[float]) -> str:
    """Few values, for a person: "0 and 1", "5 values from 0 to 4"."""
    ordered = [f"{x:g}" for x in sorted(values)]
    if len(ordered) > NAMED:
        return f"{len(ordered)} values from {ordered[0]} to {ordered[-1]}"
    return " and ".join(part for part in (", ".join(ordered[:-1]), ordered[-1]) if part)


def is_complex_data(t: object) -> bool:
    """As is_data, of complex numbers. An imaginary part of zeros may be changed too: a complex tensor may hold any."""
    return isinstance(t, Tensor) and t.is_complex() and t.numel() > 0 and not has_structure(t)


def has_structure(t: Tensor) -> bool:
    """Whether its entries belong together."""
    return bool(structure(t))


def structure(t: Tensor) -> str:
    """How its entries belong together: in order, symmetric, triangular, orthogonal, or rows that add up to one; or not."""
    t = t.detach()
    if not t.dim() or t.shape[-1] < 2 or not t.numel():
        return ""
    if t.is_complex():  # of a Hermitian matrix the real part is symmetric
        return structure(t.real) or ("unitary" if is_orthogonal(t) else "")
    if _adds_up(t):
        return "with rows that add up to one"
    if t.shape[-1] >= ORDERED:
        steps = t.reshape(-1, t.shape[-1])[: max(1, LOOKED_AT // t.shape[-1])].diff(dim=-1)
        for rising in (steps >= 0, steps <= 0):
            if bool(rising.all()) and bool(steps.any()):
                return "in order"
    if t.dim() < 2 or t.shape[-1] != t.shape[-2] or t.shape[-1] < 3:
        return ""
    corner = _some(t)[..., :CORNER, :CORNER]
    if bool((corner == corner.mT).all()):
        return "symmetric"
    if not bool(corner.tril(-1).any()) or not bool(corner.triu(1).any()):
        return "triangular"
    return "orthogonal" if is_orthogonal(t) else ""


def _some(t: Tensor) -> Tensor:
    """What is looked at of a large tensor: the first entries of its first axis."""
    if t.dim() < 2 or t.numel() <= LOOKED_AT:
        return t
    return t[: max(CORNER if t.dim() == 2 else 1, LOOKED_AT // max(1, t[0].numel()))]


def is_orthogonal(t: Tensor) -> bool:
    """Whether it holds square matrices whose rows are orthogonal, of length 1 (complex: unitary); of more than SQUARE rows no."""
    if t.dim() < 2 or t.shape[-1] != t.shape[-2] or not 3 <= t.shape[-1] <= SQUARE:
        return False
    if not bool(((torch.linalg.vector_norm(t, dim=-1) - 1).abs() < 1e-3).all()):  # a product costs more to tell
        return False
    wide = t.to(torch.complex128 if t.is_complex() else torch.float64)
    eye = torch.eye(t.shape[-1], dtype=wide.dtype, device=t.device)
    return bool(((wide @ wide.mH - eye).abs() < 1e-3).all())


def _adds_up(t: Tensor) -> bool:
    """Whether it holds probabilities that add up to one."""
    return axis_of_sums(t) is not None


def axis_of_sums(t: Tensor) -> int | None:
    """The axis along which its entries, none negative, add up to one; None if there is none."""
    if not bool((sampled(t) >= 0).all()):
        return None
    t = _some(t)
    for axis in (-1, min(1, t.dim() - 1)):
        if bool(((t.sum(axis, dtype=torch.float64) - 1).abs() < 1e-3).all()):
            return axis
    return None


def size_of(t: Tensor) -> float:
    return float(torch.linalg.vector_norm(t.detach().float(), dtype=torch.float64)) / max(1, t.numel()) ** 0.5 or 1.0


def like(t: Tensor, values: Tensor) -> Tensor:
    """`values` with the strides and type of `t`."""
    return torch.empty_like(t).copy_(values)


def fill(name: str, values: Sequence[object], generator: torch.Generator) -> list[object]:
    """The flat inputs changed. Raises CannotVary."""
    if name in SPECIAL:
        return SPECIAL[name](values, generator)
    odd = BY_NAME[name].odd if name in BY_NAME else False
    chosen = [i for i, t in enumerate(values) if is_data(t) or (is_complex_data(t) and not odd)]
    if name in RARE_KINDS:
        return _rare_in(name, values, chosen, generator)
    if name == "steady" and not any(getattr(values[i], "ndim", 0) > 2 for i in chosen):
        raise CannotVary("no input holds sequences")
    if not chosen and name != "rolled":
        raise CannotVary("" if name in OTHERS else "no input holds data that may be changed")
    out = list(values)
    changes: dict[str, Callable[[Tensor], Tensor]] = {
        "zero-mean": lambda t: torch.randn(t.shape, generator=generator, device=t.device) * size_of(t),
        "planted": lambda t: _planted(t, generator),
        "negated": lambda t: -t,
        "times 100": lambda t: t * 100,
        "times 1000": lambda t: t * 1e3,
        "times 10000": lambda t: t * 1e4,
        "times 100000": lambda t: t * 1e5,
        "times 0.001": lambda t: t * 1e-3,
        "times 1e-7": lambda t: t * 1e-7,
        "moderate": lambda t: -4 - 8 * torch.rand(t.shape, generator=generator, device=t.device),
        "offset": lambda t: size_of(t) * (10 + torch.randn(t.shape, generator=generator, device=t.device)),
        "graded": lambda t: _graded(t, generator),
        "close": lambda t: 1 + 2.0**-10 * torch.randn(t.shape, generator=generator, device=t.device),
        "distinct": lambda t: _distinct(t, generator),
        "constant": lambda t: torch.full_like(t, 0.5),
        "zero rows": lambda t: torch.where(_kinds(t, 3, generator) == 0, 0, t),
        "odd rows": lambda t: _odd_rows(t, generator),
        "clustered": lambda t: _clustered(t, generator),
        "far below": lambda t: (t.abs() + size_of(t)) * -1e5,
        "steady": lambda t: _steady(t, generator),
        MIXED: lambda t: _mixed(t, generator),
    }
    if name in changes:
        for i in chosen:
            t = values[i]
            assert isinstance(t, Tensor)
            out[i] = like(t, _around_nan(t, changes[name]))
    elif name == "rolled":
        sizes = [t.shape[0] for t in values if isinstance(t, Tensor) and _may_roll(t)]
        if not sizes:
            raise CannotVary("no input has rows")
        by = int(torch.randint(1, max(2, min(sizes)), (1,), generator=generator, device=generator.device))
        out = [like(t, t.roll(by, 0)) if isinstance(t, Tensor) and _may_roll(t) else t for t in values]
    elif odd:
        placed = [(chosen[0], "inf"), (chosen[-1], "-inf")]
        if name in OTHERS:
            others = [i for i in chosen[1:] if getattr(values[i], "ndim", 0) > 1]
            if len(others) <= OTHERS[name]:
                raise CannotVary("")
            behind = others[OTHERS[name] :]
            of = (
                torch.randint(0, len(behind), (1,), generator=generator, device=generator.device)
                if len(behind) > 1
                else 0
            )
            placed = [(behind[int(of)] if name == "a NaN in a later input" else behind[0], "nan")]
        if name == "a NaN":  # the last one at the end, where a kernel has what is left of whole blocks
            vectors = [i for i in chosen[1:] if getattr(values[i], "ndim", 2) < 2]
            placed = [(i, "nan") for i in (chosen[0], *vectors, chosen[0])]
        for number, (i, what) in enumerate(placed):
            t = out[i]
            assert isinstance(t, Tensor)
            new = like(t, t)
            at = int(torch.randint(0, t.numel(), (1,), generator=generator, device=generator.device))
            at = t.numel() - 1 if number == len(placed) - 1 and name == "a NaN" else at
            new[tuple(int(n) for n in torch.unravel_index(torch.tensor(at), t.shape))] = float(what)
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
    if t.is_floating_point() and t.dim() < 3 and has_structure(t) and not _adds_up(t):
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
    return _changed(out, values)


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


def on_edges(values: Sequence[object], generator: torch.Generator, edges: Tensor) -> list[object]:
    """A quarter of the entries of data become one of `edges` (a vector) each. Raises CannotVary, with nothing to report."""
    out = list(values)
    for i, t in enumerate(values):
        if isinstance(t, Tensor) and is_data(t) and edges.numel():
            places = torch.randint(0, edges.numel(), t.shape, generator=generator, device=t.device)
            out[i] = like(t, torch.where(_few(t, 4, generator), edges[places].to(t.dtype), t))
    return _changed(out, values)


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
    return _changed(out, values)


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
    return _changed(out, values)


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
    return _changed(out, values)


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
            and not _belongs_together(t, False)
            and bool((steps < 0).any(-1).all())
        ):
            by = int(torch.randint(t.shape[-1] // 8, t.shape[-1] // 2 + 1, (1,), generator=generator, device=t.device))
            new = torch.where(_kinds(t, 2, generator) == 0, new, t.roll(by, -1))
        if not torch.equal(new, t):
            out[i] = like(t, new)
    return _changed(out, values)


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
            out[i] = like(t, torch.where(_few(t, 4, generator), smaller, t))
        elif bool((first == 0) | (first == 1)):
            made = t.to(torch.int64) if whole else t.float()
            out[i] = like(t, torch.where(_few(t, 16, generator), 1 - made, made))
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
        sign = 1 - 2 * _few(t, 4, generator).float() if signs else 1.0
        out[i] = like(t, size * sign * (first if float(first) else 0.5))
    return _changed(out, values)


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
    return _changed(out, values)


def _few(t: Tensor, apart: int, generator: torch.Generator) -> Tensor:
    """Which entries are changed: one of so many, one at least."""
    some = torch.rand(t.shape, generator=generator, device=t.device) < 1 / apart
    at = int(torch.randint(0, t.numel(), (1,), generator=generator, device=generator.device))
    some.view(-1)[at] = True
    return some


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
    return _changed(out, values)


def _conditioned(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Matrices that are positive definite, with their own eigenvectors and a spectrum of another condition."""
    out = list(values)
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or not t.is_floating_point() or t.dim() < 2 or t.shape[-1] != t.shape[-2]:
            continue
        if not 3 <= t.shape[-1] <= CORNER or t.numel() > LOOKED_AT or not torch.equal(t, t.mT):
            continue
        wide = t.detach().double()
        if bool(torch.linalg.cholesky_ex(wide).info.any()):
            continue
        sizes, vectors = torch.linalg.eigh(wide)
        spectrum = torch.logspace(-CONDITION, 0, t.shape[-1], base=2, dtype=torch.float64, device=t.device)
        new = (vectors * (sizes[..., -1:] * spectrum).unsqueeze(-2)) @ vectors.mT
        out[i] = like(t, (new + new.mT) / 2)
    return _changed(out, values)


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
    return _changed(out, values)


def replaced(
    values: Sequence[object], generator: torch.Generator, exchange: bool = False, steady: Sequence[int] | None = None
) -> list[object]:
    """Of integers and truth values, in the inputs `steady` or all, few entries become others, and none near an end of a row or
    in the first of several rows, by which a memory may know the rest again. A new entry is another one of its row along the
    longest axis, so that it stays in the range of its column; where all in a row are distinct, it is a number between them that
    the row has not. With `exchange`, and in permutations, entries change places. Where rows add up to one sum (one-hot labels,
    so many of each row), they do, along the last axis. What belongs together stays: a symmetric matrix, rows in order, padding,
    blocks of truth values."""
    out = list(values)
    for i, t in enumerate(values):
        if steady is not None and i not in steady:
            continue
        if not isinstance(t, Tensor) or t.is_floating_point() or t.is_complex() or t.numel() < LEAST or not t.dim():
            continue
        whole = t.to(torch.int64)
        if _belongs_together(whole, t.dtype == torch.bool):
            continue
        alike = _same_sums(whole)
        axis = t.dim() - 1 if alike else _longest(t)
        rows = whole.movedim(axis, -1)
        new = torch.where(_in_order(rows), rows, _others(rows, generator, exchange or alike)).movedim(-1, axis)
        if t.dim() > 1 and t.shape[0] >= LEAST and not torch.equal(new[1:], whole[1:]):
            new[0] = whole[0]
        if not torch.equal(new, whole):
            out[i] = like(t, new)
    return _changed(out, values)


def _others(rows: Tensor, generator: torch.Generator, exchange: bool) -> Tensor:
    """Rows of integers in which few are others: what `replaced` says."""
    count = rows.shape[-1]
    end = count // END
    drawn = torch.rand(*rows.shape[:-1], count - 2 * end, generator=generator, device=rows.device)
    places = end + drawn.topk(min(max(2, count // MOVED), count - 2 * end)).indices
    ordered = rows.sort(-1).values
    apart = ordered.diff(dim=-1)
    if exchange or not bool((apart > 0).all()):
        new = rows.gather(-1, places.roll(1, -1))
        if exchange:
            return rows.scatter(-1, places, new)
        return rows.scatter(-1, places[..., :-1], new[..., :-1])
    if bool((apart == 1).all()):
        return _others(rows, generator, exchange=True)
    # One more than the number below the widest gap: the row has it not.
    free = ordered.gather(-1, apart.argmax(-1, keepdim=True)) + 1
    wide = apart.amax(-1, keepdim=True) > 1
    first = places[..., :1]
    return rows.scatter(-1, first, torch.where(wide, free, rows.gather(-1, first)))


def _repeated(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Of integers, most of a third of the rows become one of the row's own numbers; rows are as `replaced` has them. What belongs
    together stays, and so do rows in order and those of which all numbers are distinct, for what is stored twice at one place
    has no order."""
    out = list(values)
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or t.dtype not in WIDEST or t.numel() < LEAST or not t.dim():
            continue
        whole = t.to(torch.int64)
        if _belongs_together(whole, False) or _same_sums(whole):
            continue
        rows = whole.movedim(_longest(t), -1)
        if bool((rows.sort(-1).values.diff(dim=-1) > 0).all()):
            continue
        own = rows.gather(
            -1, torch.randint(0, rows.shape[-1], (*rows.shape[:-1], 1), generator=generator, device=t.device)
        )
        drawn = torch.rand(rows.shape, generator=generator, device=t.device)
        some = torch.rand((*rows.shape[:-1], 1), generator=generator, device=t.device) < 1 / 3
        some.reshape(-1)[:1] = True
        new = torch.where(some & (drawn < MOSTLY) & ~_in_order(rows), own, rows).movedim(-1, _longest(t))
        if not torch.equal(new, whole):
            out[i] = like(t, new)
    return _changed(out, values)


def _sorted(values: Sequence[object], generator: torch.Generator, both: bool = True) -> list[object]:
    """Integers in order along their longest axis, which keeps each in the range of its column; those of two numbers, such as
    truth values, along the last axis and, with `both`, along the one before as well."""
    out = list(values)
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or t.is_floating_point() or t.is_complex() or t.numel() < LEAST or not t.dim():
            continue
        whole = t.to(torch.int64)
        if _belongs_together(whole, t.dtype == torch.bool) or _same_sums(whole):
            continue
        two = bool(((whole == whole.min()) | (whole == whole.max())).all())
        falling = bool(torch.randint(0, 2, (), generator=generator, device=t.device))
        new = whole.sort(-1 if two else _longest(t), descending=falling).values
        if two and both and t.dim() > 1:
            new = new.sort(-2, descending=falling).values
        if not torch.equal(new, whole):
            out[i] = like(t, new)
    return _changed(out, values)


def _truth_rows(values: Sequence[object], generator: torch.Generator, whole: bool = True) -> list[object]:
    """Of truth values, a third of the rows along the last axis are all true or all false, `whole` or but for one entry."""
    out = list(values)
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or t.dtype != torch.bool or t.dim() < 2 or t.shape[-1] < LEAST or not t.numel():
            continue
        if _belongs_together(t.to(torch.int64), True):
            continue
        scores = torch.rand(t.shape, generator=generator, device=t.device)
        one = scores == scores.amax(-1, keepdim=True)
        kind = torch.randint(0, 4 if whole else 2, (*t.shape[:-1], 1), generator=generator, device=t.device)
        some = torch.rand((*t.shape[:-1], 1), generator=generator, device=t.device) < 1 / 3
        some.reshape(-1)[:1] = True
        new = torch.where(kind == 0, one, torch.where(kind == 1, ~one, kind == 2))
        out[i] = like(t, torch.where(some, new, t))
    return _changed(out, values)


def _relabelled(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Symmetric matrices, whose rows and columns change places alike: they stay what else they are, such as positive definite."""
    out = list(values)
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or t.dim() < 2 or t.shape[-1] != t.shape[-2] or not 3 <= t.shape[-1] <= SQUARE:
            continue
        if not torch.equal(t, t.mT):
            continue
        order = torch.rand(t.shape[-1], generator=generator, device=t.device).argsort()
        new = t.index_select(-1, order).index_select(-2, order)
        if not torch.equal(new, t):
            out[i] = like(t, new)
    return _changed(out, values)


def _longest(t: Tensor) -> int:
    return max(range(t.dim()), key=lambda axis: t.shape[axis])


def _in_order(rows: Tensor) -> Tensor:
    """Of each row whether it is."""
    steps = rows.diff(dim=-1)
    return (steps >= 0).all(-1, keepdim=True) | (steps <= 0).all(-1, keepdim=True)


def _same_sums(t: Tensor) -> bool:
    """Whether rows add up to one sum, as one-hot labels do."""
    sums = t.sum(-1).reshape(-1)
    return sums.numel() > 1 and bool((sums == sums[0]).all())


def _belongs_together(t: Tensor, truth: bool) -> bool:
    """Whether entries of integers (or `truth` values) have a place of their own: a symmetric matrix, rows that end in zeros as
    padding does, and of truth values rows or columns of one block each."""
    if t.dim() > 1 and t.shape[-1] == t.shape[-2] and bool((t == t.mT).all()):
        return True
    gone = t == 0
    for axis in (-1, -2) if truth and t.dim() > 1 else (-1,):
        if t.shape[axis] < ORDERED or not bool((gone.sum(axis) > 1).any()):
            continue
        if bool((gone.diff(dim=axis).sum(axis) <= (BLOCK if truth else 1)).all()):
            return True
    return False


def _changed(out: list[object], values: Sequence[object]) -> list[object]:
    """`out`; raises CannotVary, with nothing to report, if it is what it was."""
    if all(new is old for new, old in zip(out, values, strict=True)):
        raise CannotVary("")
    return out


SPECIAL: dict[str, Callable[[Sequence[object], torch.Generator], list[object]]] = {
    "ones and zeros": _flipped,
    "near one": partial(near, one=True),
    "near zero": partial(near, one=False),
    "fractions": _fractions,
    "fractions of one sign": partial(_fractions, signs=False),
    "conditioned": _conditioned,
    "other integers": replaced,
    "integers in other places": partial(replaced, exchange=True),
    "repeated integers": _repeated,
    "sorted integers": _sorted,
    "integers sorted along one axis": partial(_sorted, both=False),
    "truth rows": _truth_rows,
    "truth rows but for one": partial(_truth_rows, whole=False),
    "relabelled": _relabelled,
    "wide integers": _wide_integers,
    "wide sums": partial(_wide_integers, products=False),  # "wide integers" of a model without products
    "equal neighbours": _equal_neighbours,
    "missing values": _missing,
    "missing but one": partial(_missing, least=1),
    "missing but two": partial(_missing, least=2),
    "distributions": _distributions,
    "distributions without zeros": partial(_distributions, zeros=False),
}
