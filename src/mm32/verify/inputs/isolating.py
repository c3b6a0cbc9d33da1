"""Data of a model's shapes on which its sums have few terms, or are exact in any order: what is left shows the arithmetic's bits.

The answers are judged by what honest rounding may do on these very data (few_terms.py), not by the length of sums. Which of
these data say something depends on what the model computes, as the names of its operators tell. Where its sums have many
terms even so, the probe is left out. Runs in the reference's process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from ..exchange.wire import leaves
from ..judging.few_terms import FULL
from ..text import one_line
from .catalogue import Variation
from .contents import CannotVary, is_data, like, size_of

ISOLATING = tuple(
    Variation(name, asks, ties=True, isolating=True, state=name == "thin")
    for name, asks in (
        ("thin", "one entry of each row of weights is not zero: products of one term"),
        ("impulses", "zeros but for few entries: sums of one term keep all of its bits"),
        ("peaks", "few entries of each row are not negligible: exponentials show their bits"),
        ("pointers", "one entry of each row is not zero: scores of one term each"),
        ("levels", "pairs of +a and -a of few bits: exact statistics, so that roots show their bits"),
        ("one row", "a loss of zero but for few entries of one row: nothing averages out"),
    )
)
EXPONENTIALS = ("exp", "softmax", "attention", "cross_entropy")
ROOTS = ("norm", "var", "std", "sqrt", "pow")
# These subtract a mean: with impulses, the differences of all entries from it count.
CENTRED = ("layer_norm", "group_norm", "batch_norm", "instance_norm", "var", "std")
CLIPPED = ("sigmoid", "softplus", "relu", "clamp", "margin")
DEEP = 1024.0  # exp(-DEEP) is 0, in float64 too
FAR = 64.0  # exp(-FAR) is nothing beside 1 in fp32
# An output of at most so many entries is taken for one in which the errors of many terms average out.
FEW = 64
LOSS = 8  # the most entries of an output that is taken for a loss
LEVELS = 31
A_ROW = 3  # at least so many entries of a row count


def fits(name: str, operators: Iterable[str], lengths: Sequence[int], products: int, entries: int) -> bool:
    """Whether the probe `name` may say something about a model with these operators, sums of these lengths, so many
    products, and an output of so many entries."""
    operators = list(operators)
    exponentials = exponential(operators)
    roots, centred, clipped = (
        any(word in op for op in operators for word in words) for words in (ROOTS, CENTRED, CLIPPED)
    )
    if not lengths:
        return False  # nothing is summed: the rule's bounds are a few u as they are
    return {
        "impulses": not centred and (products > 0 or not exponentials),
        "peaks": exponentials and not products and entries > LOSS,
        "pointers": exponentials and products > 0,
        "thin": products > 0,
        "levels": roots and not exponentials and not products and entries > LOSS,
        "one row": (exponentials or clipped) and entries <= LOSS,
    }[name]


def fill(
    name: str,
    values: Sequence[object],
    generator: torch.Generator,
    lengths: Sequence[int],
    exponentials: bool,
    slopes: Callable[[], list[Tensor | None]],
) -> list[object]:
    """Return the flat inputs, changed for the probe `name`. `slopes` gives the derivatives of the output's sum with respect
    to them. Raises CannotVary."""
    chosen = [i for i, t in enumerate(values) if is_data(t)]
    if not chosen:
        raise CannotVary("no input holds data that may be changed")
    out = list(values)
    longest, shortest = max(lengths), min((n for n in lengths if n >= 16), default=max(lengths))
    derivatives = slopes() if name == "one row" else []
    for i in chosen:
        t = values[i]
        assert isinstance(t, Tensor)
        if name == "impulses":
            # Where products are followed by exponentials, only the last input gets a term for each sum: scores that are zero
            # have equal exponentials, and sums of these are exact.
            rare = exponentials and i != chosen[-1]
            made = _impulses(t, longest**1.5 if rare else float(longest), generator)
        elif name == "peaks":
            made = torch.where(_spread(t, max(2, shortest // A_ROW), generator), _near(t, generator), -DEEP)
        elif name == "pointers":
            made = _pointers(t, generator)
        elif name == "levels":
            made = _levels(t, max(1, min(LEVELS, math.isqrt(int(FULL / longest)))), generator)
        else:
            slope = derivatives[i]
            if slope is None:
                continue
            made = _one_row(t, slope, exponentials, generator)
        out[i] = like(t, made)
    return out


def slopes(call: Callable[[list[object]], object], values: Sequence[object]) -> list[Tensor | None]:
    """Return the derivatives of the sum of `call`'s output with respect to its flat inputs that are data, None for the
    others. Raises CannotVary where the output has no derivatives."""
    given = [t.detach().clone().requires_grad_() if isinstance(t, Tensor) and is_data(t) else t for t in values]
    data = [t for t in given if isinstance(t, Tensor) and t.requires_grad]
    try:
        with torch.enable_grad():
            tensors = [t for _, t in leaves(call(given)) if isinstance(t, Tensor) and t.is_floating_point()]
            found = iter(torch.autograd.grad([t.sum() for t in tensors], data, allow_unused=True))
    except RuntimeError as error:
        raise CannotVary(one_line(f"the reference has no derivatives: {error}", 160)) from None
    return [next(found) if isinstance(t, Tensor) and t.requires_grad else None for t in given]


def thin(model: nn.Module, generator: torch.Generator) -> None:
    """Make each row of the parameters of two axes or more zeros but for one entry of 24 bits, as large as the row. Raises
    CannotVary."""
    weights = [t for t in model.parameters() if t.is_floating_point() and t.dim() > 1 and t.numel() > len(t)]
    if not weights:
        raise CannotVary("it has no weights")
    with torch.no_grad():
        for t in weights:
            rows = torch.zeros(t.shape[0], t[0].numel(), device=t.device)
            place = torch.randint(0, rows.shape[1], (len(rows), 1), generator=generator, device=t.device)
            sign = torch.randint(0, 2, place.shape, generator=generator, device=t.device) * 2 - 1
            size = _power(t) * 2.0 ** round(math.log2(rows.shape[1]) / 2) / 2
            full = 1 + torch.rand(place.shape, generator=generator, device=t.device)
            t.copy_(rows.scatter_(1, place, full * sign * size).view(t.shape))


def exponential(operators: Iterable[str]) -> bool:
    """Whether a model with these operators takes exponentials."""
    return any(word in op.replace("expand", "") for op in operators for word in EXPONENTIALS)


def _uniform(t: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(t.shape, generator=generator, device=t.device)


def _near(t: Tensor, generator: torch.Generator) -> Tensor:
    """Return numbers between -2 and 2."""
    return (_uniform(t, generator) - 0.5) * 4


def _impulses(t: Tensor, apart: float, generator: torch.Generator) -> Tensor:
    """Return zeros but for one entry in `apart`, of 24 bits and of either sign."""
    hit = _uniform(t, generator) * apart < 1
    at = int(torch.randint(0, t.numel(), (1,), generator=generator, device=t.device))
    hit.view(-1)[at] = True  # one at least
    sign = torch.randint(0, 2, t.shape, generator=generator, device=t.device) * 2 - 1
    return torch.where(hit, (1 + _uniform(t, generator)) * sign * _power(t), 0.0)


def _power(t: Tensor) -> float:
    """Return the data's own size, rounded to a power of two."""
    size = size_of(t)
    return 2.0 ** round(math.log2(size)) if 0 < size < math.inf else 1.0


def _spread(t: Tensor, apart: int, generator: torch.Generator) -> Tensor:
    """Choose one entry in `apart` by the sum of shuffled indices, so that each line along any axis has its share."""
    total = torch.zeros(t.shape, dtype=torch.int64, device=t.device)
    for axis, size in enumerate(t.shape):
        shape = [1] * t.dim()
        shape[axis] = size
        total += torch.randperm(size, generator=generator, device=t.device).view(shape)
    return total % apart == 0


def _pointers(t: Tensor, generator: torch.Generator) -> Tensor:
    out = torch.zeros(t.shape, device=t.device)
    if not t.dim():
        return out + 16
    shape = (*t.shape[:-1], 1)
    place = torch.randint(0, t.shape[-1], shape, generator=generator, device=t.device)
    return out.scatter_(-1, place, 16 + 4 * torch.rand(shape, generator=generator, device=t.device))


def _levels(t: Tensor, largest: int, generator: torch.Generator) -> Tensor:
    """Return sizes of few bits, up to `largest` units, with signs like a chessboard's.

    Each entry of the first axis has a size of its own; with three axes or more, each entry of the first two. The more the
    statistics differ, the less luck decides whether one of them is rounded well.
    """
    total = torch.zeros(t.shape, dtype=torch.int64, device=t.device)
    for axis, size in enumerate(t.shape):
        shape = [1] * t.dim()
        shape[axis] = size
        total += torch.arange(size, device=t.device).view(shape)
    kinds = min(2, max(1, t.dim() - 1))  # batch norm has statistics for each entry of the second axis
    rows = (*t.shape[:kinds], *(1 for _ in t.shape[kinds:]))
    sizes = torch.randint((largest + 2) // 3, largest + 1, rows, generator=generator, device=t.device)
    return (1 - 2 * (total % 2)) * sizes * (_power(t) / 2 ** (largest.bit_length() - 1))


def _one_row(t: Tensor, slope: Tensor, exponentials: bool, generator: torch.Generator) -> Tensor:
    """Return data that make a loss as small as can be, but for a few entries of one row.

    Where data are moved down the slope by FAR, the loss of softmax, of logistic functions and of margins is nothing. For
    softmax the largest entry is zero: an honest kernel that takes powers of two of x log2(e) would round a larger one.
    """
    up = slope >= 0
    made = torch.where(up, -FAR, 0.0) if exponentials else torch.where(up, -FAR, FAR)
    made = made.to(t.device)
    row = int(torch.randint(0, t.shape[0], (1,), generator=generator, device=t.device)) if t.dim() else 0
    line = made[row].reshape(-1).clone() if t.dim() else made.reshape(-1).clone()
    some = torch.randperm(line.numel(), generator=generator, device=t.device)[: 2 * A_ROW]
    line[some] = (torch.rand(len(some), generator=generator, device=t.device) - 0.5) * 4
    if not t.dim():
        return line.view(())
    made[row] = line.view(made[row].shape)
    return made
