"""Operators that step from one answer to another where a number passes a tie.

These are rounding to integers, comparisons, places on a grid, and picks of the best. For each call, this module tells where its
ties lie, and what the call would give on their other side; see ties.py. Runs in the reference's process.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from .operator_mode import arguments, operator
from .ranked import PICKS, Ranked, others, ranked

WHOLE = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
ASIDE = 1e-3  # how far beside a bin's limit a number is put, in bins


@dataclass(frozen=True)
class Step:
    """A call of an operator that steps.

    `position`: where its numbers are, in float64; ties lie at the integers (`lattice`) or at 0. `other`: takes the call's result
    and a mask of chosen numbers; returns the result if these go to the other side of their tie. `strict`: whether the operator
    says where a number exactly on a tie goes. `ranked`: what is picked, for an operator that picks.
    """

    position: Tensor
    other: Callable[[Any, Tensor], Any]
    lattice: bool = True
    strict: bool = False
    ranked: Ranked | None = None


def step(func: Any, args: Any, kwargs: Any) -> Step | None:
    """Return a call as a Step; None if its operator does not step, or its numbers are not of floating point."""
    make = STEPS.get(operator(func))
    if make is None or not args:
        return None
    with _disable_current_modes():
        return make(func, args, kwargs)


def _is_fractional(*values: Any) -> bool:
    return any(isinstance(t, Tensor) and t.is_floating_point() for t in values)


def _wide(t: Any) -> Any:
    """Return a copy in float64; a copy, because an operator may work in place."""
    return t.detach().to(torch.float64, copy=True) if isinstance(t, Tensor) else t


def _neighbour(position: Tensor, way: str, taken: Tensor) -> Tensor:
    """Return, of the two integers that rounding in this `way` may take beside a tie, the one that was not `taken`."""
    tie = position.round()
    if way in ("round", "ceil"):
        return 2 * tie + 1 - taken
    if way == "floor":
        return 2 * tie - 1 - taken
    return torch.where(tie == 0, taken, 2 * tie - tie.sign() - taken)


def _integers(way: str, func: Any, args: Any, kwargs: Any) -> Step | None:
    if not _is_fractional(args[0]):
        return None
    factor = 10.0 ** (arguments(func, args, kwargs).get("decimals") or 0) if way == "round" else 1.0
    position = _wide(args[0]) * factor - (0.5 if way == "round" else 0.0)

    def other(out: Tensor, chosen: Tensor) -> Tensor:
        return torch.where(chosen, (_neighbour(position, way, out.double() * factor) / factor).to(out.dtype), out)

    return Step(position, other, strict=way == "round")


def _cast(func: Any, args: Any, kwargs: Any) -> Step | None:
    return _integers("trunc", func, args, kwargs) if kwargs.get("dtype") in WHOLE else None


def _division(func: Any, args: Any, kwargs: Any) -> Step | None:
    way = kwargs.get("rounding_mode") if operator(func) == "div" else "floor"
    if not way or not _is_fractional(*args[:2]):
        return None
    position = _wide(args[0]) / _wide(args[1])
    return Step(position, lambda out, chosen: torch.where(chosen, _neighbour(position, way, out.double()).to(out), out))


def _remainder(way: str, func: Any, args: Any, kwargs: Any) -> Step | None:
    """Make the step of a remainder, of a division with an integer quotient: at a tie it is 0, or a whole divisor."""
    divisor = _wide(args[1]) if len(args) > 1 else 1.0
    if not _is_fractional(args[0], divisor):
        return None
    position = _wide(args[0]) / divisor
    quotient = position.floor() if way == "floor" else position.trunc()

    def other(out: Tensor, chosen: Tensor) -> Tensor:
        return torch.where(
            chosen, out + ((quotient - _neighbour(position, way, quotient)) * divisor).to(out.dtype), out
        )

    return Step(position, other)


def _comparison(func: Any, args: Any, kwargs: Any) -> Step | None:
    if len(args) < 2 or not _is_fractional(*args[:2]):
        return None
    position = torch.as_tensor(_wide(args[0]) - _wide(args[1]))
    return Step(position, lambda out, chosen: torch.where(chosen, ~out, out), lattice=False)


def _sign(func: Any, args: Any, kwargs: Any) -> Step | None:
    if not _is_fractional(args[0]):
        return None
    last = 1.0 if operator(func) == "heaviside" else 0.0  # 0 and 1 change places, or -1 and 1
    return Step(_wide(args[0]), lambda out, chosen: torch.where(chosen, last - out, out), lattice=False)


def _histogram(func: Any, args: Any, kwargs: Any) -> Step | None:
    """Make the step of a histogram, whose positions are bins; None if its limits are not given."""
    given = arguments(func, args, kwargs)
    low, high, count = float(given["min"]), float(given["max"]), int(given["bins"])
    if not low < high or not _is_fractional(args[0]):
        return None
    position = (_wide(args[0]) - low) * (count / (high - low))

    def other(out: Tensor, chosen: Tensor) -> Tensor:
        limit = position.round()
        bins = limit + torch.where(position >= limit, -ASIDE, ASIDE)
        moved = torch.where(chosen, (low + bins * (high - low) / count).to(args[0].dtype), args[0])
        return func(moved, *args[1:], **kwargs)

    return Step(position, other)


def _search(func: Any, args: Any, kwargs: Any) -> Step | None:
    """Make the step of a search for places among sorted numbers; a number's position is its distance from the nearest of them."""
    given = arguments(func, args, kwargs)
    numbers, edges = given.get("self"), given.get("boundaries", given.get("sorted_sequence"))
    if not isinstance(numbers, Tensor) or not isinstance(edges, Tensor) or not _is_fractional(numbers):
        return None
    if not edges.numel() or given.get("sorter") is not None:
        return None
    x, last = _wide(numbers), edges.shape[-1] - 1
    at = func(*args, **kwargs).long()
    along = edges.double()
    if along.dim() == 1 and x.dim():
        along = along.expand(*x.shape[:-1], last + 1)

    def edge(place: Tensor) -> Tensor:
        return along.gather(-1, place.clamp(0, last)) if x.dim() else along[place.clamp(0, last)]

    below = torch.where(at > 0, x - edge(at - 1), math.inf)
    above = torch.where(at <= last, x - edge(at), -math.inf)
    nearer_below = below.abs() <= above.abs()

    def other(out: Tensor, chosen: Tensor) -> Tensor:
        return torch.where(chosen, torch.where(nearer_below, out - 1, out + 1), out)

    return Step(torch.where(nearer_below, below, above), other, lattice=False)


def _codes(func: Any, args: Any, kwargs: Any) -> Step | None:
    """Make the step of fake_quantize (quantised and back), with one scale for all or one for each channel."""
    given = arguments(func, args, kwargs)
    scale, zero = _wide(given["scale"]), _wide(given["zero_point"])
    if "axis" in given:
        shape = [-1 if i == given["axis"] else 1 for i in range(args[0].dim())]
        scale, zero = scale.view(shape), zero.view(shape)
    position = _wide(args[0]) / scale - 0.5

    def other(out: tuple[Tensor, Tensor], chosen: Tensor) -> tuple[Tensor, Tensor]:
        code = _neighbour(position, "round", (position + 0.5).round()) + zero
        moved = (code.clamp(given["quant_min"], given["quant_max"]) - zero) * scale
        return torch.where(chosen, moved.to(out[0].dtype), out[0]), out[1]

    return Step(position, other)


def _pick(func: Any, args: Any, kwargs: Any) -> Step | None:
    found = ranked(func, args, kwargs)
    if found is None:
        return None
    return Step(found.gaps(), lambda out, chosen: others(out, found, chosen), lattice=False, ranked=found)


STEPS: dict[str, Callable[[Any, Any, Any], Step | None]] = {
    **{way: partial(_integers, way) for way in ("round", "floor", "ceil", "trunc")},
    "_to_copy": _cast,
    **dict.fromkeys(("div", "floor_divide"), _division),
    "remainder": partial(_remainder, "floor"),
    **dict.fromkeys(("fmod", "frac"), partial(_remainder, "trunc")),
    **dict.fromkeys(("gt", "ge", "lt", "le"), _comparison),
    **dict.fromkeys(("sign", "heaviside"), _sign),
    "histc": _histogram,
    **dict.fromkeys(("bucketize", "searchsorted"), _search),
    **dict.fromkeys(
        (
            "fake_quantize_per_tensor_affine_cachemask",
            "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
            "fake_quantize_per_channel_affine_cachemask",
        ),
        _codes,
    ),
    **dict.fromkeys(PICKS, _pick),
}
