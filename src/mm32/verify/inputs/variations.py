"""Other data for any model, made from its own: the same shapes and kinds of values, but of other signs, sizes and places.

What is a mask, a label, an index or a distribution stays one. Where the reference has no finite answer for the new
data, or fails on them, the variation does not apply: the reference's process tries it first. Runs in the reference's process.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from . import chains, matrices, regrouped
from .catalogue import BY_NAME, LATER_INPUT, OTHERS
from .contents import (
    LEAST,
    ORDERED,
    WIDEST,
    CannotVary,
    adds_up,
    around_nan,
    axis_of_sums,
    changed,
    few,
    has_structure,
    is_complex_data,
    is_data,
    like,
    size_of,
    structure,
)
from .rare_rows import RARE_KINDS, with_rare_lines
from .rows import CHANGES, kinds_of_rows

SPREAD = 4.0  # the spread of the logarithm of a product of numbers near 1
KINDS, PEAKED = 5, 8.0  # kinds of rows that add up to one; how many times as large the scores of peaked ones are
JUST_BELOW = 1 - 2.0**-6  # data that reach beyond this hold numbers close to 1 already
FAR = 16.0  # "aligned" rows are so many times as large as the largest entry


def fill(
    name: str,
    values: Sequence[object],
    generator: torch.Generator,
    structured: bool = False,
    single: bool = False,
) -> list[object]:
    """Return the flat inputs, changed by the variation `name`.

    With `structured`, symmetric and triangular inputs are changed too where there are no other data, and stay symmetric or
    triangular. `single`: the output has one entry, so that of several NaN none would show by itself. Raises CannotVary.
    """
    if name in SPECIAL:
        return SPECIAL[name](values, generator)
    odd = name in BY_NAME and BY_NAME[name].odd
    chosen = [i for i, t in enumerate(values) if is_data(t) or (is_complex_data(t) and not odd)]
    if structured and not chosen and not odd:
        kinds = matrices.of_numbers(values)
        filled = _filled(name, values, [*kinds], generator)
        return [matrices.again(kinds[i], t) if i in kinds else t for i, t in enumerate(filled)]
    return _filled(name, values, chosen, generator, single)


def _filled(
    name: str, values: Sequence[object], chosen: list[int], generator: torch.Generator, single: bool = False
) -> list[object]:
    """Return the inputs with the `chosen` ones changed, each by itself."""
    odd = name in BY_NAME and BY_NAME[name].odd
    if name in RARE_KINDS:
        return with_rare_lines(name, values, chosen, generator)
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
        out[i] = like(t, around_nan(t, lambda of: change(of, generator)))
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
    """Put NaN or Inf into some of the `chosen` inputs, as the variation says; with `single`, no more than one NaN."""
    if name == "impossible":
        out, seed = list(values), int(torch.randint(0, 1 << 31, (1,), generator=generator, device=generator.device))
        for i in chosen:
            t = values[i]
            assert isinstance(t, Tensor)
            out[i] = like(t, _impossible(t, torch.Generator(device=t.device).manual_seed(seed)) if t.dim() else t)
        return out
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
        # At the end, where a kernel handles what whole blocks leave over.
        if name == "a NaN" and number == len(placed) - 1:
            at = t.numel() - 1
        new[tuple(int(n) for n in np.unravel_index(at, tuple(t.shape)))] = float(what)
        out[i] = new
    return out


def _may_roll(t: Tensor) -> bool:
    """Whether a tensor has rows whose order means nothing. Sorted integers (where segments begin, say) are to stay sorted."""
    if not t.dim() or t.shape[0] < 2:
        return False
    if t.is_floating_point() and t.dim() < 3 and has_structure(t) and not adds_up(t):
        return False
    if t.dim() > 1 or t.is_floating_point() or t.is_complex() or t.dtype == torch.bool:
        return True
    steps = t.to(torch.int64).diff()
    return not bool((steps >= 0).all()) or not bool(steps.any())


def aligned(values: Sequence[object], generator: torch.Generator, weights: Sequence[Tensor]) -> list[object]:
    """Set a third of the rows of data to the signs of a row or column, of as many entries, of one of the `weights`, times
    FAR and the largest entry. Half of them take the row or column whose sum of sizes is the largest. Raises CannotVary, with
    nothing to report."""
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
    """Set a quarter of the entries of data to one of `edges` (a vector) each. Raises CannotVary, with nothing to report."""
    out = list(values)
    for i, t in enumerate(values):
        if isinstance(t, Tensor) and is_data(t) and edges.numel():
            places = torch.randint(0, edges.numel(), t.shape, generator=generator, device=t.device)
            out[i] = like(t, torch.where(few(t, 4, generator), edges[places].to(t.dtype), t))
    return changed(out, values)


def within(own: Tensor, new: Tensor) -> Tensor:
    """Return `new` as numbers from 0 to 1: where any lies outside, the least becomes 0 and the largest 1. Return `own` where
    `new` holds NaN or Inf."""
    if not bool(new.isfinite().all()):
        return own
    wide = new.double()
    low, high = wide.amin(), wide.amax()
    if bool(low >= 0) and bool(high <= 1):
        return new
    return like(own, (wide - low) / (high - low)) if bool(high > low) else torch.full_like(own, 0.5)


def on_ends(values: Sequence[object], generator: torch.Generator, limited: Collection[int]) -> list[object]:
    """In data that are `limited` to numbers from 0 to 1, set an eighth of the entries to 0, an eighth to 1, an eighth to
    numbers from 2^-60 to 2^-20 and an eighth to numbers from 1 - 2^-12 to 1 - 2^-24, in each input by itself. Raises
    CannotVary, with nothing to report."""
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
    """In rows in order, set two entries of five to the value of the one before, among them the second and the last."""
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
    """In inputs that hold NaN, leave a fifth of the rows each with `least` values, with one more, with two more, with all,
    and as they are. A row runs along the last axis."""
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


def _by_earlier(
    values: Sequence[object],
    generator: torch.Generator,
    change: Callable[[Tensor, Tensor, torch.Generator], Tensor],
) -> list[object]:
    """Change data by the first data of the same shape and type, if these come before them: `change` gets both. Raises CannotVary,
    with nothing to report."""
    out = list(values)
    first: dict[object, Tensor] = {}
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or not is_data(t) or not t.dim():
            continue
        other = first.setdefault((t.shape, t.dtype), t)
        if other is not t:
            out[i] = like(t, change(t, other, generator))
    return changed(out, values)


def _alike(t: Tensor, other: Tensor, generator: torch.Generator) -> Tensor:
    """Return the other one; half of the rows differ from it by a millionth of the usual size."""
    near = other + 1e-6 * size_of(other) * torch.randn(t.shape, generator=generator, device=t.device)
    return torch.where(kinds_of_rows(t, 2, generator) == 0, other, near.to(t.dtype))


def _alike_inputs(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Make data those of the first input of the same shape and type, and so integers: sequences that are compared, say. Of
    integers, a sixteenth of half of the rows stays. Raises CannotVary, with nothing to report."""
    out = list(values)
    for i in alike(values):
        t = values[i]
        other = next(x for x in values if isinstance(x, Tensor) and (x.dtype, x.shape) == (t.dtype, t.shape))  # type: ignore[attr-defined]
        assert isinstance(t, Tensor)
        ends, others = ([int(x.min()), int(x.max())] for x in (t, other))
        room = (ends[1] - ends[0]) / 8  # for both to be drawn from one range
        one_range = all(abs(a - b) <= room for a, b in zip(ends, others, strict=True))
        if one_range and t.dim() and not regrouped.belongs_together(t.to(torch.int64), False):
            own = (kinds_of_rows(t, 2, generator) == 0) & few(t, 16, generator)
            out[i] = like(t, torch.where(own, t, other))
    with contextlib.suppress(CannotVary):
        made = _by_earlier(values, generator, _alike)
        out = [new if new is not old else mine for new, old, mine in zip(made, values, out, strict=True)]
    return changed(out, values)


def _opposite(t: Tensor, other: Tensor, generator: torch.Generator) -> Tensor:
    """Set half of the rows to the negative of the other one's."""
    return torch.where(kinds_of_rows(t, 2, generator) == 0, -other, t)


def _zero_input(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Set one of the inputs of data to zeros. Raises CannotVary, with nothing to report."""
    chosen = [i for i, t in enumerate(values) if is_data(t)]
    if not chosen:
        raise CannotVary("")
    out = list(values)
    i = chosen[int(torch.randint(0, len(chosen), (1,), generator=generator, device=generator.device))]
    t = values[i]
    assert isinstance(t, Tensor)
    out[i] = like(t, torch.zeros_like(t))
    return changed(out, values)


def _whole_range(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Set integers of 8 and 16 bits to any that their type holds, and a fourth of the rows each to its least, its largest, and
    the two in turn. Raises CannotVary, with nothing to report."""
    out = list(values)
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or t.dtype not in (torch.int8, torch.uint8, torch.int16) or t.numel() < LEAST:
            continue
        low, high = torch.iinfo(t.dtype).min, torch.iinfo(t.dtype).max
        new = torch.randint(low, high + 1, t.shape, generator=generator, device=t.device)
        kind = kinds_of_rows(t, 4, generator)
        turns = torch.arange(t.shape[-1], device=t.device) % 2 == 0
        new = torch.where(kind == 0, low, torch.where(kind == 1, high, new))
        new = torch.where(kind == 2, torch.where(turns, low, high), new)
        out[i] = like(t, new)
    return changed(out, values)


def _impossible(t: Tensor, generator: torch.Generator) -> Tensor:
    """Set a third of the rows to -Inf, half of the entries of another third at its beginning, and a fourth of the other entries.
    Of several such tensors of one shape, the same entries are set with the same state of `generator`."""
    kind = kinds_of_rows(t, 3, generator)
    half = torch.arange(t.shape[-1], device=t.device) < t.shape[-1] // 2
    scattered = torch.rand(t.shape, generator=generator, device=t.device) < 0.25
    where = torch.where(kind == 0, True, torch.where(kind == 1, half, scattered)) if t.dim() > 1 else scattered
    return torch.where(where, -math.inf, t)


def _just_below_one(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """In data from above 0 to JUST_BELOW (decays, say), set a third of the rows, or of a vector's entries, to numbers
    between 1 - 2^-5 and 1 - 2^-12. Raises CannotVary, with nothing to report."""
    out = list(values)
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or not is_data(t) or not t.dim():
            continue
        low, high = (float(end) for end in t.aminmax())
        if not 0 < low <= high <= JUST_BELOW:
            continue
        size = torch.exp2(-5 - 7 * torch.rand(t.shape, generator=generator, device=t.device))
        some = few(t[..., :1] if t.dim() > 1 else t, 3, generator)
        out[i] = like(t, torch.where(some, 1 - size, t.float()))
    return changed(out, values)


def alike(values: Sequence[object]) -> list[int]:
    """Return which inputs of integers have the type and the shape of one before them."""
    kinds = [
        (t.dtype, t.shape) if isinstance(t, Tensor) and t.dtype in WIDEST and t.numel() >= LEAST else None
        for t in values
    ]
    return [i for i, kind in enumerate(kinds) if kind is not None and kind in kinds[:i]]


def of_another_draw(values: Sequence[object], other: Sequence[object], generator: torch.Generator) -> list[object]:
    """Replace the inputs that are `alike` by those of `other`, which get_inputs made with another seed. But half of the rows
    are their own ones, rolled along the last axis by up to half of it, unless rows are in order or padded. Raises
    CannotVary, with nothing to report."""
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
            new = torch.where(kinds_of_rows(t, 2, generator) == 0, new, t.roll(by, -1))
        if not torch.equal(new, t):
            out[i] = like(t, new)
    return changed(out, values)


def _flipped(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Change some entries of masks and weights that get_inputs makes all ones or all zeros to the other value, and of
    integers that it makes all the same to smaller ones: they are inputs even if they are constant."""
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
    """Give inputs of floating point that get_inputs makes all one number other sizes: they are weights as often as masks.

    The sizes are a quarter to twice that number, and with `signs` a quarter of them are negative; zeros become numbers up to
    1. An input of more than one value is left alone: a kernel may well read ones and zeros, or labels, as what they are.
    """
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
    """Return data whose products over `length` entries (or the longest axis) neither vanish nor overflow: with `one`
    products of the entries, else of 1 minus the entries."""
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
    """Replace rows that add up to one by others: peaked, uniform, at random, and with `zeros` also rows of which half are
    zeros, and rows of which one entry is all. What is all zeros and ones, labels say, stays so."""
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


def _wide_integers(values: Sequence[object], generator: torch.Generator, products: bool = True) -> list[object]:
    """Return integers of all sizes that sums as long as the longest axis can hold, sums of `products` or of the integers
    themselves. For int64, sums stay below 2^52, which float64 holds too."""
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


# The changes of all inputs together, by the names of variations.
SPECIAL: dict[str, Callable[[Sequence[object], torch.Generator], list[object]]] = {
    "rolled": _rolled,
    "alike inputs": _alike_inputs,
    "opposite inputs": partial(_by_earlier, change=_opposite),
    "zero input": _zero_input,
    "whole range of bytes": _whole_range,
    "ones and zeros": _flipped,
    "just below one": _just_below_one,
    "near one": partial(near, one=True),
    "near zero": partial(near, one=False),
    "fractions": _fractions,
    "fractions of one sign": partial(_fractions, signs=False),
    "conditioned": matrices.conditioned,
    "isolated": matrices.isolated,
    "indefinite": matrices.indefinite,
    "isotropic": matrices.isotropic,
    "other integers": regrouped.replaced,
    "integers in other places": partial(regrouped.replaced, exchange=True),
    "repeated integers": regrouped.repeated,
    "equal pairs": regrouped.equal_pairs,
    "rare rows of integers": regrouped.rare_rows,
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
