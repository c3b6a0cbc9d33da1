"""Numbers so near a tie that honest rounding may take them to either side: codes of quantised arithmetic, places on a grid, what
is compared with a limit, the nearest of several.

A model that computes round(x / s) is exact behind it, but for the few x / s that lie within rounding of a half: each goes to
one of two codes, and moves all that is computed of it. A float64 run that is perturbed meets some of them, an honest candidate
others, and the reference others again. So `Ties` finds them all, by what perturbed runs do to the operands of each such
operator (steps.py); and the model runs in float64 some times more, each with a part of them on the other side (`OtherSide`). What
that moves at the output is room for the entries that it moves, and for no other. Runs in the reference's process.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from .composites import by_parts
from .operator_mode import Mode
from .steps import step

WIDE = 4.0  # how many times what perturbed runs do to an operand it may be from a tie
SHARE = 1 / 64  # of an operator's entries, of which no more may be near a tie: otherwise rounding decides all of it
MOST = 1 << 26  # entries of all operands that are kept
PARTS = 4  # of them, of which each goes to the other side in a run of its own


class Ties:
    """Those of a model's operators, in the order in which it calls them. `near`: by the number of the call, which entries."""

    def __init__(self) -> None:
        self.near: dict[int, Tensor] = {}
        self._positions: list[Tensor | None] = []
        self._places: dict[int, Tensor] = {}  # of what is picked
        self._kept = 0

    def keep(self, func: Any, args: Any, kwargs: Any) -> None:
        """In a run that is not perturbed: where the numbers of a call are."""
        if (found := step(func, args, kwargs)) is None:
            return
        self._kept += found.position.numel()
        if self._kept <= MOST and found.ranked is not None:
            self._places[len(self._positions)] = found.ranked.places
        self._positions.append(found.position if self._kept <= MOST else None)

    def compare(self, number: int, func: Any, args: Any, kwargs: Any, u: float) -> int:
        """In a run that is perturbed by `u`: the operand of the call of this number, if it is a call that counts. The number of
        the next one."""
        if (found := step(func, args, kwargs)) is None:
            return number
        right = self._positions[number] if number < len(self._positions) else None
        position, sizes = found.position, None
        if found.ranked is not None:
            places = self._places.get(number)
            if places is None or places.shape != found.ranked.places.shape:
                return number + 1
            position, sizes = found.ranked.gaps(places), found.ranked.sizes(places)
        if right is not None and right.shape == position.shape and right.device == position.device:
            noise = (position - right).abs().nan_to_num_(nan=0.0, posinf=0.0)
            usual = _root_mean_square(noise)
            if sizes is not None:  # of small shares of a whole it is as small
                usual = torch.minimum(
                    usual, _root_mean_square((noise / sizes).nan_to_num_(nan=0.0, posinf=0.0)) * sizes
                )
            off = torch.maximum(noise, usual)
            if found.lattice:
                apart, room = (right - right.round()).abs(), WIDE * torch.maximum(off, right.abs() * u)
            else:
                apart, room = right.abs(), WIDE * off
            # What lies on a tie in float64 was not rounded on the way, and no honest kernel rounds it. But the largest of a row
            # lies on a tie of floor(x / largest * n), and may be rounded there.
            near = (apart <= room) & ((apart > 0) if found.strict else (apart > 0) | (noise > 0))
            near = near | self.near[number] if number in self.near else near
            one = found.ranked is not None  # that is picked is few enough, of however few
            if 0 < int(near.sum()) <= max(one, SHARE * near.numel()):
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
        if (out := by_parts(self, func, args, kwargs)) is not NotImplemented:
            return out
        if (found := step(func, args, kwargs)) is None:
            return func(*args, **kwargs)
        number, near = self.number, self.ties.near.get(self.number)
        self.number += 1
        out = func(*args, **kwargs)
        if near is None or near.shape != found.position.shape:
            return out
        with _disable_current_modes():
            chosen = near & ((near.reshape(-1).cumsum(0).reshape(near.shape) * 2 + number) % PARTS == self.part)
            other = found.other(out, chosen)
        return out.copy_(other) if func._schema.is_mutable else other


def _root_mean_square(t: Tensor) -> Tensor:
    return t.square().mean(-1, keepdim=True).sqrt() if t.dim() else t
