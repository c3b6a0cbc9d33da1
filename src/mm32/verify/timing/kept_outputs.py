"""Which outputs of timed windows are kept, to be judged like all others; and windows that do not count, with data of probes."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..exchange.handover import LARGE as STAYS
from ..inputs.pools import Pools, Recipe
from . import sequential
from .window import Bench, Window, difference

UNTIMED = 4  # the most calls that are judged where calls cannot be timed
STATES = 2  # windows, drawn at random from all, whose last call is judged by the buffers that it leaves as well
PROBE_CALLS = 3  # the most probes of the first rounds where windows have one call, since such calls are long
# After the first rounds: the most windows with data of probes, the chance of one in each round, and the most probes of a window.
LATER, LATER_CHANCE, LATER_CALLS = 2, 0.25, 2


class Misfit(Exception):
    """An output in a timed window that its slot could not take. `role`: whose output; the message says what it was.

    `calls`: recipe, seed and name of the probe (or "") of calls for which the reference's answer may not fit into a slot either,
    since its shape may depend on the data. Empty where the reference's answers for the same data did fit."""

    def __init__(self, role: str, says: str, calls: Sequence[tuple[Recipe, int, str]] = ()):
        super().__init__(says)
        self.role, self.calls = role, list(calls)


@dataclass
class Kept:
    """One output of the candidate's from a timed call.

    `recipe`, `seed`: what made the call's data; `leaves`: the output's leaves in order; `why`: why it was kept; `probe`: the name
    of the probe whose data they are, or ""; `state`: the buffers that the call has left, where they are to be judged."""

    recipe: Recipe
    seed: int
    leaves: list[Any]
    why: str
    probe: str = ""
    state: Any = None


def seeds_of(calls: int, draws: bool) -> list[int]:
    """Return a seed for each call of a window, which nobody can predict; [] where the model draws no random numbers."""
    chance = random.SystemRandom()
    return [chance.randrange(1 << 31) for _ in range(calls)] if draws else []


class Surprises:
    """The candidate's windows that do not count, with data of probes in some of their calls.

    Nobody can predict their order. All probes come in the first rounds, of which there are always as many. A few come again in
    later rounds and after the last one, so that it does not help to count windows. The keeper keeps their outputs."""

    def __init__(self, probes: Mapping[str, Recipe], calls: int, chance: random.SystemRandom):
        names = chance.sample(sorted(probes), len(probes))
        if calls == 1:
            names = names[:PROBE_CALLS]  # a call takes long
        each = max(1, calls // 2)  # a window's other calls get the usual data
        self.left = [names[begin : begin + each] for begin in range(0, len(names), each)]
        self.rounds = [chance.randrange(sequential.MIN_ROUNDS) for _ in self.left]
        self.probes, self.calls, self.chance = probes, calls, chance
        self.later = LATER

    def due(self, number: int) -> int:
        """Return how many of these windows belong to round `number`."""
        if number < sequential.MIN_ROUNDS:
            return self.rounds.count(number)
        if not self.later or self.chance.random() >= LATER_CHANCE:
            return 0
        self.later -= 1
        return self.once_more()

    def once_more(self) -> int:
        """Draw the probes of another window. Return how many windows that makes: 0 where there are no probes, else 1."""
        if not self.probes:
            return 0
        count = min(LATER_CALLS, len(self.probes), max(1, self.calls // 2))
        self.left.append(self.chance.sample(sorted(self.probes), count))
        return 1

    def window(self, bench: Bench, pools: Pools, draws: bool, keeper: Keeper) -> None:
        """Run the next of these windows. Raises Failure and Misfit."""
        names = self.left.pop()
        recipes, seeds = pools.recipes(self.calls), seeds_of(self.calls, draws)
        places = self.chance.sample(range(self.calls), len(names))
        for place, name in zip(places, names, strict=True):
            recipes[place] = self.probes[name]
        bench.leave_outputs()  # the round's own window may have come first, and its outputs are needed
        window = bench.window(recipes, seeds)
        if window.misfit is not None:  # the reference's answers for these data are not known yet
            given = dict(zip(places, names, strict=True))
            first = dict.fromkeys([min(window.misfit_call, self.calls - 1), *places])
            calls = [(recipes[i], seeds[i] if seeds else 0, given.get(i, "")) for i in first]
            raise Misfit("candidate", window.misfit, calls)
        for place, name in zip(places, names, strict=True):
            keeper.of_probes.append(_kept(bench, window, recipes, seeds, place, name, probe=name))


def _kept(
    bench: Bench, window: Window, recipes: list[Recipe], seeds: list[int], call: int, why: str, probe: str = ""
) -> Kept:
    plain = len(window.values) // len(recipes)
    found: list[Tensor] = [t.clone() if t.nbytes >= STAYS else t.cpu().clone() for t in bench.leaves(window, call)]
    values = merged(bench, found, window.values[call * plain : (call + 1) * plain])
    return Kept(recipes[call], seeds[call] if seeds else 0, values, why, probe)


class Keeper:
    """Chooses, after each round, which of the candidate's outputs to keep: the one that is farthest from the reference's, and
    `count` at random from all rounds so far."""

    def __init__(self, count: int, chance: random.SystemRandom):
        self.count = count
        self.chance = chance
        self.seen = 0
        self.worst: tuple[float, Kept] | None = None
        self.drawn: list[Kept] = []
        self.of_probes: list[Kept] = []
        self.states: list[Kept] = []
        self.windows = 0
        self.place = 0  # the index in `states` of the next window's output

    def wants_state(self) -> bool:
        """Return whether to keep the buffers that the next window leaves; all windows have the same chance."""
        self.windows += 1
        most = min(STATES, self.count)
        self.place = self.windows - 1 if self.windows <= most else self.chance.randrange(self.windows)
        return self.place < most

    def look(self, bench: Bench, candidate: Window, reference: Window, recipes: list[Recipe], seeds: list[int]) -> None:
        calls = len(recipes)
        scores = difference(bench, candidate, reference)
        plain = len(candidate.values) // calls
        for call in range(calls):
            mine, theirs = (w.values[call * plain : (call + 1) * plain] for w in (candidate, reference))
            scores[call] = max([scores[call], *(_far(a, b) for a, b in zip(mine, theirs, strict=True))])

        def kept(call: int, why: str) -> Kept:
            return _kept(bench, candidate, recipes, seeds, call, why)

        if candidate.state is not None:
            last = kept(calls - 1, "for the buffers that it leaves")
            last.state = _on_the_host(candidate.state)
            self.states[self.place : self.place + 1] = [last]
        most = max(range(calls), key=scores.__getitem__)
        if self.worst is None or scores[most] > self.worst[0]:
            self.worst = (scores[most], kept(most, "farthest from the reference's"))
        # Reservoir sampling: each call of all rounds is kept with the same chance.
        for call in range(calls):
            self.seen += 1
            if len(self.drawn) < self.count:
                self.drawn.append(kept(call, "at random"))
            elif (place := self.chance.randrange(self.seen)) < self.count:
                self.drawn[place] = kept(call, "at random")

    def kept(self) -> list[Kept]:
        assert self.worst is not None
        return [self.worst[1], *self.drawn, *self.states, *self.of_probes]


def _on_the_host(state: Any) -> Any:
    return {name: t.cpu() if isinstance(t, Tensor) else t for name, t in state.items()} if type(state) is dict else {}


def merged(bench: Bench, tensors: list[Tensor], values: list[Any]) -> list[Any]:
    """Return an output's leaves in their order, merged from its tensors and its other leaves, `values`."""
    of_tensors, others = iter(tensors), iter(values)
    return [next(others) if part.dtype is None else next(of_tensors) for part in bench.outputs]


def _far(a: Any, b: Any) -> float:
    """Return how far apart two leaves are that are not tensors."""
    if type(a) is float and type(b) is float and math.isfinite(a) and math.isfinite(b):
        return abs(a - b) / max(abs(b), 1e-30)
    return 0.0 if a == b or (a != a and b != b) else math.inf
