"""Faster or not: rounds of timed windows of both sides, of a second process of the reference, and of a worker without a model.

A window (window.py) is timed by this process's clock. The null worker's windows tell what a window takes besides the model's
calls; subtracting that leaves net times. In a round, all processes are timed in random order on the same data. sequential.py says
when to stop and what to conclude. The candidate's outputs of every call are compared with the reference's; the worst and some
at random are kept, to be judged against the truth.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from ..inputs.pools import Pools, Recipe
from ..processes.process import Pause
from ..text import in_units
from ..verdict import Verdict
from . import faster_half, one_call, sequential, several
from .kept_outputs import Keeper, Kept, Misfit, Surprises, seeds_of
from .one_call import Claim, OneCall
from .window import Bench, Window

SIDES = ("reference", "candidate", "control", "null")
TARGET = {"cpu": 0.004, "cuda": 0.02}  # seconds that the reference's calls in a window should take
MOST = 0.3  # the most seconds that the slower side's calls in a window take, unless it has only one or two calls
LONG = 0.5  # where a call takes more seconds, a window has one call
COLD = 0.1  # the most seconds of calls that a window has only in order to exceed large caches
MOST_CALLS = 1000
ESTIMATES = 3  # the most estimates of a call's seconds after the first one
LONGER = 1.5  # while an estimate gives windows this many times as many calls, another estimate follows
ENOUGH = 12  # until there are so many rounds the budget may be exceeded threefold: fewer can tell only large factors
GIVE_UP = 240.0  # seconds after which no round begins
TRUSTED_SHARE = 0.05  # the least share of a window's time that is believed to be its net time
# FASTER is not believed where the reference takes more than this many times its time before a candidate was loaded.
SLOWED = {"cpu": 1.5, "cuda": 1.2}

NO_OUTPUTS = torch.empty(0, 0, dtype=torch.uint8)


@dataclass
class Times:
    """One process's windows, in seconds of a call. `walls`: by whole windows; `rounds`: net; `claims`: what its worker said."""

    walls: list[float] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)
    claims: list[float] = field(default_factory=list)

    @property
    def call(self) -> float:
        """Net seconds of a call, by the faster half of the windows."""
        return faster_half.typical(self.rounds)

    @property
    def wall(self) -> float:
        """Seconds of a call by whole windows, by the faster half of them."""
        return faster_half.typical(self.walls)

    @property
    def spread(self) -> float:
        """Half the interquartile range of the net times over their median."""
        if len(self.rounds) < 4:
            return 0.0
        low, middle, high = statistics.quantiles(self.rounds, n=4)
        return (high - low) / 2 / middle if middle > 0 else 0.0

    def record(self) -> dict[str, Any]:
        return {
            "call_s": self.call,
            "median_s": statistics.median(self.rounds),
            "spread": self.spread,
            "wall_s": self.wall,
            "rounds_s": list(self.rounds),
            "walls_s": list(self.walls),
            "claimed_s": statistics.median(self.claims),
        }


@dataclass
class Timing:
    """The outcome of `measure`, in seconds of a call.

    `ratio`, `low`, `high`: reference over candidate, net. `margin`: the factor that the interval had to clear. `null`: what a
    window takes without a model; `exchange`: the same without the copies of outputs. `certain`: the ratio on the assumption that
    the candidate saved all of those copies. `alone`: the reference's time by whole windows before a candidate was loaded.
    `quiet`: whether the candidate's processes stood still while others were timed.
    """

    sides: dict[str, Times]
    ratio: float
    low: float
    high: float
    coverage: float
    margin: float
    null: float
    exchange: float
    certain: float
    alone: float
    calls: int
    verdict: Verdict
    note: str
    kept: list[Kept] = field(default_factory=list)
    quiet: bool = True
    a_round: float = 0.0  # seconds by the clock that a round took
    groups: list[dict[str, Any]] = field(default_factory=list)  # records of several groups of processes; repeated.py
    one_call: OneCall | None = None  # what windows of one call say of FASTER; None where none were made
    fastest: float = 0.0  # seconds of a call in the reference's fastest window beside the candidate

    @property
    def rounds(self) -> int:
        return len(self.sides["reference"].walls)

    def record(self) -> dict[str, Any]:
        """For the report."""
        reference, candidate = self.sides["reference"], self.sides["candidate"]
        return {
            "reference": reference.record(),
            "candidate": candidate.record(),
            "control": self.sides["control"].record(),
            "speedup": self.ratio,
            "interval": [self.low, self.high],
            "coverage": self.coverage,
            "margin": self.margin,
            "wall_speedup": reference.wall / candidate.wall,
            "certain_speedup": self.certain,
            "null_s": self.null,
            "exchange_s": self.exchange,
            "alone_s": self.alone,
            "rounds": self.rounds,
            "calls_a_round": self.calls,
            "null_walls_s": list(self.sides["null"].walls),
            "groups": self.groups,
            "one_call": self.one_call.record() if self.one_call is not None else None,
        }


def cost(bench: Bench, pools: Pools) -> tuple[float, bool]:
    """Return about the seconds of one call of a bench, and whether the model draws random numbers.

    For a bench of one slot, the seconds are those of a whole window."""
    ones, many, draws = [], [], False
    n = bench.count
    for number in range(3 if n > 1 else 2):
        one = bench.window([pools.recipe()], watch=True)
        draws |= one.draws
        if number == 0 and LONG < one.seconds < 2 * LONG:  # the first call also touches memory and loads code
            one = bench.window([pools.recipe()])
        ones.append(one.seconds)
        if one.seconds > LONG:
            return min(ones), draws
        if n > 1:
            many.append(bench.window([pools.recipe() for _ in range(n)]).seconds)
    if n == 1:
        return min(ones), draws
    return max((min(many) - min(ones)) / (n - 1), min(many) / (3 * n)), draws


def estimated(
    cost: Callable[[int], float], tried: int, calls_of: Callable[[float], int], target: float
) -> tuple[float, int]:
    """Return the seconds of a call, and how many calls a window has.

    `cost` measures the seconds by windows of the given number of slots, at first `tried`. `calls_of` gives the number of calls
    for such seconds. A window should have `target` seconds of calls.

    A window's own work, mapping memory and messages, takes as long as many short calls. A few calls cannot be told from it, and
    windows made by such an estimate are too short. So the next estimate uses windows of the size that the last one gave, as long
    as they become much longer.
    """
    seconds = cost(tried)
    calls = calls_of(seconds)
    for _ in range(ESTIMATES):
        if calls < 2 or calls * seconds > LONGER * target:
            break
        seconds = min(seconds, cost(calls))
        before, calls = calls, calls_of(seconds)
        if calls < LONGER * before:
            break
    return seconds, calls


def calls_of_a_window(seconds: float, slot: int, cache: int, most: int, device: str) -> int:
    """Return how many calls of `seconds` a window has. In bytes: `slot` of a slot, `cache` of the caches, `most` of a window.

    The calls last long enough for the clock, and have more data than the caches hold, but do not take too long. A single call
    with more data than a whole window should have is a window.
    """
    if seconds > LONG or slot > most:
        return 1
    wanted = max(TARGET[device] / seconds, min(2 * cache / max(slot, 1), COLD / seconds))
    return max(2, min(math.ceil(wanted), MOST_CALLS, most // max(slot, 1), max(2, int(MOST / seconds))))


def alone(bench: Bench, pools: Pools, calls: int, draws: bool) -> float:
    """Return the reference's seconds of a call by whole windows, while there is no candidate."""
    begin, found = time.monotonic(), []
    for _ in range(5):
        found.append(bench.window(pools.recipes(calls), seeds_of(calls, draws)).seconds)
        if time.monotonic() - begin > 1:
            break
    return statistics.median(found) / calls


class Rounds:
    """Rounds of timed windows of some processes, one of them the candidate's. In a round all get the same data, in random order.

    `draws`: whether calls are seeded. `keep`: how many of the candidate's outputs are kept at random. `paused` stops the
    candidate's processes while others are timed; `quiet` says whether they all stood still. `probes`: data of probes, by their
    names. The candidate gets them in windows that do not count, at random among the others, so that it cannot be right where
    it is judged and fast where it is timed. `warm`: whether each window follows one of the same process that does not count.
    `state`: the most bytes of the buffers that calls change, which are part of every counted window's results, as its outputs
    are, for both sides; some of the candidate's are kept. None where calls change none."""

    def __init__(
        self,
        benches: Mapping[str, Bench],
        pools: Pools,
        calls: int,
        draws: bool,
        keep: int,
        paused: Callable[[], AbstractContextManager[Pause]],
        probes: Mapping[str, Recipe] = MappingProxyType({}),
        warm: bool = False,
        state: int | None = None,
    ):
        self.warm, self.state = warm, state
        self.benches, self.pools, self.calls, self.draws, self.paused = benches, pools, calls, draws, paused
        self.chance = random.SystemRandom()
        self.surprises = Surprises(probes, calls, self.chance)
        self.keeper = Keeper(keep, self.chance)
        self.times = {name: Times() for name in benches}
        self.exchange: list[float] = []  # seconds of a call that the null worker takes without its copies
        self.quiet = True
        self.done = 0

    def one(self) -> None:
        """Time the next round. Raises Failure and Misfit."""
        calls, pools = self.calls, self.pools
        recipes = pools.recipes(calls)
        seeds = seeds_of(calls, self.draws)
        windows: dict[str, Window] = {}
        order = [*self.benches, *["of probes"] * self.surprises.due(self.done)]
        self.chance.shuffle(order)
        for bench in self.benches.values():  # a look at a candidate takes longer: not just before its windows
            bench.worker.watch()
        for theirs, names in itertools.groupby(order, lambda name: name in ("candidate", "of probes")):
            # Nothing that the candidate left running may slow the others down.
            with contextlib.nullcontext(Pause(True)) if theirs else self.paused() as pause:
                for name in names:
                    if name == "of probes":
                        self.surprises.window(self.benches["candidate"], pools, self.draws, self.keeper)
                        continue
                    if self.warm:
                        self.benches[name].window([pools.recipe() for _ in range(calls)], seeds_of(calls, self.draws))
                    state = None if name == "null" else self.state
                    windows[name] = self.benches[name].window(recipes, seeds, state=state)
                    if name != "candidate" or (state is not None and not self.keeper.wants_state()):
                        windows[name].state = None
                    if name in ("control", "null"):
                        windows[name].outputs = NO_OUTPUTS  # nobody looks at them, and they may be large
                    if name == "null" and self.done < sequential.MIN_ROUNDS:
                        seconds = self.benches[name].window(recipes, seeds, deliver=False).seconds
                        self.exchange.append(seconds / calls)
            self.quiet = self.quiet and pause.still
        misfits = {name: window.misfit for name, window in windows.items() if window.misfit is not None}
        for name in sorted(misfits, key=lambda name: name == "candidate"):
            unsteady = []
            if name != "candidate":
                unsteady = [(recipe, seeds[i] if seeds else 0, "") for i, recipe in enumerate(recipes)]
                unsteady.insert(0, unsteady.pop(min(windows[name].misfit_call, calls - 1)))
            raise Misfit(name, misfits[name] or "", unsteady)
        for name, window in windows.items():
            self.times[name].walls.append(window.seconds / calls)
            self.times[name].claims.append(window.claimed / calls)
        self.keeper.look(self.benches["reference"], windows["candidate"], windows["reference"], recipes, seeds)
        self.done += 1

    def last(self) -> None:
        """After the last round, run one more window with data of probes. Raises Failure and Misfit."""
        for _ in range(self.surprises.once_more()):
            self.surprises.window(self.benches["candidate"], self.pools, self.draws, self.keeper)


def measure(
    rounds: Rounds, device: str, before: float, budget: float, progress: Callable[[str], None], further: bool = False
) -> Timing:
    """Time all SIDES for about `budget` seconds (see ENOUGH), unless the result is clear sooner. Raises Failure and Misfit.

    `further`: where the difference is small, fresh processes are timed afterwards, so these rounds end when they are one good
    sample of several."""
    begin = time.monotonic()
    times = rounds.times
    for number in range(sequential.MAX_ROUNDS):
        progress(f"timing, round {number + 1}")
        rounds.one()
        _subtract(times)
        spent = time.monotonic() - begin
        enough = ENOUGH if spent < 3 * budget else sequential.MIN_ROUNDS
        reference, control, candidate = (times[name].rounds for name in several.SIDES)
        if further and several.first_is_over(reference, control, candidate, device):
            break
        longer = 3 if sequential.promising(reference, control, candidate, device) else 1
        late = spent > GIVE_UP or (number + 1 >= enough and spent > longer * budget)
        if late or sequential.decided(reference, control, candidate, device):
            break
    rounds.last()
    exchange = faster_half.typical(rounds.exchange)
    made = conclude(times, exchange, before, rounds.calls, device, rounds.keeper.kept(), rounds.quiet)
    made.a_round = spent / rounds.done
    return made


def measure_one_call(rounds: Rounds, claim: Claim, device: str, progress: Callable[[str], None]) -> OneCall:
    """Time windows of one call until they bear the claim out, or there are enough. Raises Failure and Misfit."""
    begin = time.monotonic()
    times = rounds.times
    for number in range(one_call.MOST):
        progress(f"timing calls by themselves, round {number + 1}")
        rounds.one()
        late = time.monotonic() - begin > one_call.BUDGET
        if number + 1 not in one_call.RANKS and not late:
            continue
        _subtract(times)
        found = one_call.look(
            {name: times[name].walls for name in several.SIDES},
            {name: times[name].rounds for name in several.SIDES},
            claim,
            device,
        )
        if found is not None and (late or found.says == one_call.AGREES):
            break
    assert found is not None
    rounds.last()
    return found


def borne_out(timing: Timing, found: OneCall, quiet: bool) -> Timing:
    """Return `timing`, whose verdict is FASTER, with that verdict checked by what windows of one call say."""
    note, verdict = "", timing.verdict
    measured = (
        f"{timing.ratio:.2f}x in windows of {timing.calls} calls, but {found.ratio:.2f}x in windows of one call, "
        f"{found.low:.2f} to {found.high:.2f}: it saves {in_units(found.saved.ratio)} a call there, where the claim wants "
        f"{in_units(found.wanted)}."
    )
    if not quiet:
        note, verdict = suspicion(quiet, 0.0, 0.0, "cpu"), Verdict.SUSPECT
    elif found.says == one_call.CONTRADICTS:
        verdict = Verdict.SUSPECT
        note = (
            f"{measured} A caller of single calls would not see the gain: calls that are computed together, ahead of their turn, "
            "look like this"
        )
    elif found.says == one_call.DOUBTS:
        verdict = Verdict.INCONCLUSIVE
        note = f"{measured} Times there vary too much to tell whether a caller of single calls would see the gain"
    return dataclasses.replace(timing, one_call=found, verdict=verdict, note=note or timing.note)


def net(whole: float, without: float) -> float:
    return max(whole - without, TRUSTED_SHARE * whole)


def is_floored(side: Times) -> bool:
    """Return whether the net time of a side's windows is too small a share of them to be believed."""
    return side.call <= 1.001 * TRUSTED_SHARE * side.wall


def _subtract(times: dict[str, Times]) -> None:
    null = times["null"].wall
    for one in times.values():
        one.rounds = [net(wall, null) for wall in one.walls]


def suspicion(quiet: bool, fastest: float, before: float, device: str) -> str:
    """Return why FASTER is not believed, or "" if it is. `fastest`: the reference's fastest window beside the candidate."""
    if not quiet:
        return "some process of the candidate's could not be stopped while the reference was timed"
    if is_slowed(fastest, before, device):
        return (
            f"the reference took {in_units(before)} a call before the candidate was loaded, "
            f"and at least {in_units(fastest)} beside it"
        )
    return ""


def is_slowed(fastest: float, before: float, device: str) -> bool:
    """Return whether the reference's fastest window beside a candidate took longer than its time `before` leaves room for."""
    return not (fastest <= SLOWED[device] * before)


def conclude(
    times: dict[str, Times],
    exchange: float,
    before: float,
    calls: int,
    device: str,
    kept: list[Kept],
    quiet: bool = True,
) -> Timing:
    """Return the verdict on speed from times whose net rounds are known. A pure function of the times.

    `quiet`: whether all of the candidate's processes stood still while others were timed."""
    reference, control, candidate = (times[name] for name in several.SIDES)
    rounds, null = len(candidate.walls), times["null"].wall
    outcome = sequential.look(reference.rounds, control.rounds, candidate.rounds, device)
    found = outcome.interval
    certain = reference.call / max(candidate.wall - exchange, TRUSTED_SHARE * candidate.wall)
    verdict, note = Verdict.INCONCLUSIVE, ""
    # If floored, the candidate's net time is the least that is believed, and a ratio to it would be of nothing measured.
    floored = is_floored(candidate)
    whole = faster_half.ratio(reference.walls, candidate.walls)
    if outcome.says == "faster":
        note = suspicion(quiet, min(reference.walls), before, device)
        if note:
            verdict = Verdict.SUSPECT
        elif not (whole.low > (outcome.margin if floored else 1)):
            note = f"faster net of the exchange of data, but not in whole windows ({whole.ratio:.2f}x)"
        else:
            verdict = Verdict.FASTER
            if floored:
                found = whole
                note = "at least, by whole windows: a call takes too little to tell it from the exchange of data"
    elif outcome.says == "slower":
        verdict = Verdict.SLOWER
    elif not math.isfinite(outcome.margin):
        note = f"{rounds} rounds are too few"
    elif outcome.margin > sequential.MARGIN[device] and not (outcome.unborne or found.low <= 1 <= found.high):
        noise = faster_half.ratio(reference.rounds, control.rounds)
        note = (
            f"the interval does not clear a factor of {outcome.margin:.2f}, which {rounds} rounds need "
            f"(two processes of the reference differ by {noise.low:.2f} .. {noise.high:.2f})"
        )
    else:
        note = outcome.why_unclear()
    return Timing(
        times,
        found.ratio,
        found.low,
        found.high,
        found.coverage,
        outcome.margin,
        null,
        exchange,
        certain,
        before,
        calls,
        verdict,
        note,
        kept,
        quiet,
        fastest=min(reference.walls),
    )
