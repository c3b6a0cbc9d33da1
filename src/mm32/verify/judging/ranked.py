"""Which entries an operator picks as the largest or the smallest, or sorts, and which entry comes next to each.

If two consecutive entries differ by less than rounding, as two distances to cluster centres do now and then, an honest candidate
may pick or order them the other way round: see ties.py. Runs in the reference's process.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .operator_mode import arguments, operator

# Operators that pick or sort along a dimension, and whether the largest comes first; None where an argument decides this.
PICKS: dict[str, bool | None] = {"argmax": True, "argmin": False, "max": True, "min": False, "topk": None, "sort": None}


@dataclass(frozen=True)
class Ranked:
    """The `count` entries of `t` along dimension `dim` that an operator picks, in order, and the next one, if there is one.

    `places`: where in `t` they are.
    """

    t: Tensor
    dim: int
    count: int
    places: Tensor

    def gaps(self, places: Tensor | None = None) -> Tensor:
        """Return the difference between each picked entry and the next, with `dim` as the first axis.

        With `places`, the entries at these places count instead of those that are picked.
        """
        values = self._values(places)
        return (values[:-1] - values[1:]).nan_to_num_(nan=math.inf, posinf=math.inf, neginf=-math.inf)

    def sizes(self, places: Tensor) -> Tensor:
        """Return the larger absolute value of each such pair."""
        values = self._values(places).abs_()
        return torch.maximum(values[:-1], values[1:])

    def _values(self, places: Tensor | None) -> Tensor:
        at = self.places if places is None else places
        return self.t.gather(self.dim, at).to(torch.float64, copy=True).movedim(self.dim, 0)

    def swapped(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Return the places that are picked if the `chosen` entries swap with the next, and a mask of those that change.

        `chosen` is a mask of the shape of `gaps`.
        """
        places = self.places.movedim(self.dim, 0).clone()
        for first in (0, 1):  # an entry swaps with the next or with the one before
            pair = chosen[first::2]
            one, other = places[first:-1:2].clone(), places[first + 1 :: 2].clone()
            places[first:-1:2] = torch.where(pair, other, one)
            places[first + 1 :: 2] = torch.where(pair, one, other)
        places = places.movedim(0, self.dim)
        picked, usual = (p.narrow(self.dim, 0, self.count) for p in (places, self.places))
        return picked, picked != usual


def ranked(func: Any, args: Any, kwargs: Any) -> Ranked | None:
    """Return what a call picks; None if its operator picks no places or has nothing to choose from."""
    name = operator(func)
    if name not in PICKS or not args or not isinstance(args[0], Tensor) or not args[0].is_floating_point():
        return None
    given = arguments(func, args, kwargs)
    if name in ("max", "min") and not isinstance(given.get("dim"), int):
        return None  # the maximum of all entries, or of two tensors, is a value without a place
    t, dim = args[0], given.get("dim")
    if dim is None:
        t, dim = t.reshape(-1), 0
    if not t.dim() or t.shape[dim] < 2 or not t.numel():
        return None
    size = t.shape[dim]
    largest = PICKS[name]
    if largest is None:
        largest = bool(given["largest"] if name == "topk" else given["descending"])
    count = {"topk": int(given.get("k") or 0), "sort": size}.get(name, 1)
    if not count:
        return None
    return Ranked(t, dim % t.dim(), count, t.topk(min(count + 1, size), dim, largest=largest).indices)


def others(out: Any, found: Ranked, chosen: Tensor) -> Any:
    """Return what the operator gives in place of `out` if the `chosen` entries swap with the next."""
    picked, changed = found.swapped(chosen)
    places = out if isinstance(out, Tensor) else out[1]
    if picked.shape != places.shape:
        picked, changed = picked.reshape(places.shape), changed.reshape(places.shape)
    places = torch.where(changed, picked, places)
    if isinstance(out, Tensor):
        return places
    at = places if places.dim() == found.t.dim() else places.unsqueeze(found.dim)
    values = found.t.gather(found.dim, at).reshape(places.shape)
    return torch.where(changed, values, out[0]), places
