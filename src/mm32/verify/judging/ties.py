"""Numbers so near a tie that honest rounding may take them to either side: codes of quantised arithmetic, places on a grid, what
is compared with a limit, the nearest of several.

A model that computes round(x / s) is exact behind that step, except for the few x / s that lie within rounding of a half. Each
of these goes to one of two codes, and moves all that is computed from it. A perturbed float64 run takes some of them to the other
side, an honest candidate others, and the reference others again. So `Ties` finds them all, by what perturbed runs do to the
operands of each such operator (steps.py). Then the model runs in float64 PARTS more times, each time with a part of them on the
other side (`OtherSide`). As far as that moves an entry of the output, the entry may be off; other entries get no room. Runs in
the reference's process.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from .composites import by_parts
from .operator_mode import Mode
from .steps import step

WIDE = 4.0  # a number is near a tie if its distance is at most so many times what a perturbed run moves it
SHARE = 1 / 64  # if more of an operator's entries are near a tie, rounding decides all of it, and none of them count
MOST = 1 << 26  # the most entries that are kept, of all operands together
PARTS = 4  # entries near a tie make so many parts; each goes to the other side in a run of its own


class Ties:
    """The ties of a model's operators, which are numbered in the order of their calls.

    `near`: by the number of the call, a mask of the entries near a tie.
    """

    def __init__(self) -> None:
        self.near: dict[int, Tensor] = {}
        self._positions: list[Tensor | None] = []
        self._places: dict[int, Tensor] = {}  # by the number of a call that picks, the places that it picks
        self._kept = 0

    def keep(self, func: Any, args: Any, kwargs: Any) -> None:
        """Keep, in an unperturbed run, the positions of a call's numbers."""
        if (found := step(func, args, kwargs)) is None:
            return
        self._kept += found.position.numel()
        if self._kept <= MOST and found.ranked is not None:
            self._places[len(self._positions)] = found.ranked.places
        self._positions.append(found.position if self._kept <= MOST else None)

    def compare(self, number: int, func: Any, args: Any, kwargs: Any, u: float) -> int:
        """Note, in a run perturbed by `u`, which entries of the call of this number are near a tie, if it is a call that counts.

        Return the number of the next such call.
        """
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
            if sizes is not None:  # among shares of a whole, small ones have as small a noise
                usual = torch.minimum(
                    usual, _root_mean_square((noise / sizes).nan_to_num_(nan=0.0, posinf=0.0)) * sizes
                )
            off = torch.maximum(noise, usual)
            if found.lattice:
                apart, room = (right - right.round()).abs(), WIDE * torch.maximum(off, right.abs() * u)
            else:
                apart, room = right.abs(), WIDE * off
            # A number exactly on a tie in float64 was not rounded on the way, and no honest kernel rounds it. But the largest
            # entry of a row lies on a tie of floor(x / largest * n), and may be rounded there.
            near = (apart <= room) & ((apart > 0) if found.strict else (apart > 0) | (noise > 0))
            near = near | self.near[number] if number in self.near else near
            one = found.ranked is not None  # of what is picked, one entry near a tie is never too many
            if 0 < int(near.sum()) <= max(one, SHARE * near.numel()):
                self.near[number] = near
            else:
                self.near.pop(number, None)
        return number + 1


class OtherSide(Mode):
    """A run in which the part number `part` of the `ties` goes to the other side.

    A part has every second entry near a tie of one call, and none of the next call's. So what two neighbours of a call, or two
    calls that follow each other, move at one place adds up over the parts, and does not cancel.
    """

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
