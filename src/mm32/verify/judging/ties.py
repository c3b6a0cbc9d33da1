"""Numbers so near a tie that honest rounding may take them to either side: codes of quantised arithmetic, places on a grid, what
is compared with a limit, the nearest of several.

A model that computes round(x / s) is exact behind it, but for the few x / s that lie within rounding of a half: each goes to
one of two codes, and moves all that is computed of it. A float64 run that is disturbed meets some of them, an honest candidate
others, and the reference others again. So `Ties` finds them all, by what disturbed runs do to the operands of each such
operator; and the model runs in float64 some times more, each with a part of them on the other side (`OtherSide`). What that moves
at the output is room for the entries that it moves, and for no other. Runs in the reference's process.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from .operator_mode import Mode, arguments, operator
from .ranked import PICKS, Ranked, others, ranked

# Operators that make integers of numbers, as which of these they do it. A cast does so if it is one to integers.
STEPS = {"round": "round", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "_to_copy": "trunc"}
SIDES = {"gt", "ge", "lt", "le"}  # operators that tell on which side of a number another one lies
DIVISIONS = {"floor_divide": "floor", "div": ""}  # of div by its rounding mode
WHOLE = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
WIDE = 4.0  # how many times what disturbed runs do to an operand it may be from a tie
SHARE = 1 / 64  # of an operator's entries, of which no more may be near a tie: otherwise rounding decides all of it
ASIDE = 1e-3  # of a bin
MOST = 1 << 26  # entries of all operands that are kept
PARTS = 4  # of them, of which each goes to the other side in a run of its own


class Ties:
    """Those of a model's operators, in the order in which it calls them. `near`: by the number of the call, which entries."""

    def __init__(self) -> None:
        self.near: dict[int, Tensor] = {}
        self._operands: list[Tensor | None] = []
        self._places: dict[int, Tensor] = {}
        self._kept = 0

    def keep(self, func: Any, args: Any, kwargs: Any) -> None:
        """In a run that is not disturbed: the operand of a call."""
        if (step := _step(func, args, kwargs)) is None:
            return
        operand, way = step
        gaps = operand.gaps() if isinstance(operand, Ranked) else operand
        self._kept += gaps.numel()
        if isinstance(operand, Ranked) and self._kept <= MOST:
            self._places[len(self._operands)] = operand.places
        self._operands.append(_from_a_tie(gaps, way) if self._kept <= MOST else None)

    def compare(self, number: int, func: Any, args: Any, kwargs: Any, u: float) -> int:
        """In a run that is disturbed by `u`: the operand of the call of this number, if it is a call that counts. The number of
        the next one."""
        if (step := _step(func, args, kwargs)) is None:
            return number
        operand, way = step
        right = self._operands[number] if number < len(self._operands) else None
        sizes = None
        if isinstance(operand, Ranked):
            if (places := self._places.get(number)) is None or places.shape != operand.places.shape:
                return number + 1
            sizes = operand.sizes(places)
            operand = operand.gaps(places)
        if right is not None and right.shape == operand.shape and right.device == operand.device:
            noise = (_from_a_tie(operand, way) - right).abs().nan_to_num_(nan=0.0, posinf=0.0)
            usual = _root_mean_square(noise)
            if sizes is not None:  # of small shares of a whole it is as small
                usual = torch.minimum(
                    usual, _root_mean_square((noise / sizes).nan_to_num_(nan=0.0, posinf=0.0)) * sizes
                )
            off = torch.maximum(noise, usual)
            if way in ("side", "place"):
                apart, room = right.abs(), WIDE * off
            else:
                apart, room = (right - right.round()).abs(), WIDE * torch.maximum(off, right.abs() * u)
            # What lies on a tie in float64 was not rounded on the way, and no honest kernel rounds it. But the largest of a row
            # lies on a tie of floor(x / largest * n), and may be rounded there.
            near = (apart <= room) & ((apart > 0) if way == "round" else (apart > 0) | (noise > 0))
            near = near | self.near[number] if number in self.near else near
            if 0 < int(near.sum()) <= max(way == "place", SHARE * near.numel()):
                self.near[number] = near
            else:
                self.near.pop(number, None)
        return number + 1


class OtherSide(Mode):
    """A run in which a part of the `ties` go to the other side: of one call every second one, and of the next call others, so
    that what two of them move at one place adds up over the parts, and does not cancel."""

    def __init__(self, ties: Ties, part: int) -> None:
        super().__init__()
        self.ties, self.part = ties, part
        self.number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (step := _step(func, args, kwargs)) is None:
            return func(*args, **kwargs)
        number, near = self.number, self.ties.near.get(self.number)
        self.number += 1
        operand, way = step
        if near is None or near.shape != (operand.gaps() if isinstance(operand, Ranked) else operand).shape:
            return func(*args, **kwargs)
        chosen = near & ((near.reshape(-1).cumsum(0).reshape(near.shape) * 2 + number) % PARTS == self.part)
        if isinstance(operand, Ranked):
            with _disable_current_modes():
                return others(func, args, kwargs, operand, chosen)
        if way == "bins":
            return _in_other_bins(func, args, kwargs, operand, chosen)
        operand = operand.clone() if func._schema.is_mutable else operand
        out = func(*args, **kwargs)
        other = torch.where(chosen, ~out if way == "side" else _other(operand, way, out), out)
        return out.copy_(other) if func._schema.is_mutable else other


def _root_mean_square(t: Tensor) -> Tensor:
    return t.square().mean(-1, keepdim=True).sqrt() if t.dim() else t


def _step(func: Any, args: Any, kwargs: Any) -> tuple[Tensor, str] | tuple[Ranked, str] | None:
    """The number that a call makes integers of, and which of two neighbours it takes; None if it does nothing of the kind."""
    name = operator(func)
    if name in PICKS:
        with _disable_current_modes():
            picks = ranked(func, args, kwargs)
        return None if picks is None else (picks, "place")
    if name == "histc":
        return _bins(args, arguments(func, args, kwargs))
    if name in SIDES:
        return _side(*args[:2]) if len(args) > 1 else None
    way = STEPS.get(name, DIVISIONS.get(name))
    if way is None or not args or not isinstance(args[0], Tensor) or not args[0].is_floating_point():
        return None
    if name in DIVISIONS:
        way = way or kwargs.get("rounding_mode") or ""
        if not way:
            return None
        with _disable_current_modes():
            return torch.true_divide(args[0], args[1]), way
    if name == "round" and arguments(func, args, kwargs).get("decimals"):
        return None
    return None if name == "_to_copy" and kwargs.get("dtype") not in WHOLE else (args[0], way)


def _side(left: Any, right: Any) -> tuple[Tensor, str] | None:
    """By how much one number is above another, of those of floating point."""
    floats = [t for t in (left, right) if isinstance(t, Tensor) and t.is_floating_point()]
    if not floats:
        return None
    with _disable_current_modes():
        return torch.as_tensor(left, device=floats[0].device).double() - right, "side"


def _bins(args: Any, given: dict[str, Any]) -> tuple[Tensor, str] | None:
    """Of the numbers that a histogram counts, the bins, if its limits are given."""
    low, high, count = float(given["min"]), float(given["max"]), int(given["bins"])
    if not low < high or not args[0].is_floating_point():
        return None
    with _disable_current_modes():
        return (args[0] - low) * (count / (high - low)), "bins"


def _in_other_bins(func: Any, args: Any, kwargs: Any, bins: Tensor, chosen: Tensor) -> Any:
    """A histogram of numbers of which those that are chosen lie on the other side of the nearest limit of a bin."""
    given = arguments(func, args, kwargs)
    with _disable_current_modes():
        limit = bins.round()
        other = limit + torch.where(bins >= limit, -ASIDE, ASIDE)
        width = (float(given["max"]) - float(given["min"])) / int(given["bins"])
        moved = torch.where(chosen, float(given["min"]) + other * width, args[0])
    return func(moved, *args[1:], **kwargs)


def _from_a_tie(operand: Tensor, way: str) -> Tensor:
    """Numbers that are integers where the operand lies at a tie, in float64."""
    with _disable_current_modes():
        return operand.double() - 0.5 if way == "round" else operand.detach().to(torch.float64, copy=True)


def _other(operand: Tensor, way: str, out: Tensor) -> Tensor:
    """The neighbour that was not taken, of entries near a tie."""
    with _disable_current_modes():
        tie = _from_a_tie(operand, way).round()
        if way in ("round", "ceil"):
            both = 2 * tie + 1
        elif way == "floor":
            both = 2 * tie - 1
        else:
            both = torch.where(tie == 0, 2 * out.double(), 2 * tie - tie.sign())
        return (both - out.double()).to(out.dtype)
