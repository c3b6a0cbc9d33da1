"""Small differences: fresh processes of both sides replace the first ones a few times; each group is one sample (several.py).

The cost is bounded: a group begins only where there is time for its processes and for enough of its rounds.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from dataclasses import dataclass
from typing import Any

from ..verdict import Verdict
from . import faster_half, several
from .rounds import Rounds, Times, Timing, is_floored, net, suspicion

DEVICES = ("cuda",)  # not the CPU: its margin for one process of each side is larger than what this could tell
BUDGET = 32.0  # the most seconds of all further groups
A_START = 2.5  # seconds that the first further group is assumed to need besides its rounds
# Seconds of loading and building a candidate, above which it is not known beforehand whether its processes can be repeated.
BUILT_SOON = 4.0
WITHIN = 8.0  # the most seconds for each step of a fresh process; one that takes longer is not waited for
CACHES = 256 << 20  # the most bytes of a build's caches that the candidate's fresh processes are given
NULL_SHARE = 0.25  # about the null worker's share of a round's time; later groups do not time it again


@dataclass
class Sample:
    """One group's windows, in seconds of a call. `walls`: by whole windows; `nets`: net."""

    walls: dict[str, list[float]]
    nets: dict[str, list[float]]

    @classmethod
    def of(cls, times: dict[str, Times], null: float) -> Sample:
        walls = {name: list(times[name].walls) for name in several.SIDES}
        return cls(walls, {name: [net(wall, null) for wall in found] for name, found in walls.items()})

    def group(self) -> several.Group:
        return several.group(*(self.nets[name] for name in several.SIDES))

    def in_whole_windows(self) -> several.Group:
        return several.group(*(self.walls[name] for name in several.SIDES))

    def record(self) -> dict[str, Any]:
        """Return what the report says of it: net seconds of a call, and the ratios that the rule uses."""
        found = self.group()
        seconds = {f"{name}_s": faster_half.typical(self.nets[name]) for name in several.SIDES}
        return {**seconds, "speedup": math.exp(found.ratio), "control": math.exp(found.control), "rounds": self.rounds}

    @property
    def rounds(self) -> int:
        return len(self.walls["candidate"])


class Repetition:
    """All groups of a verification. `first`: the timing of the first group, made as usual."""

    def __init__(self, first: Timing, device: str):
        self.first, self.device = first, device
        self.samples = [Sample.of(first.sides, first.null)]
        self.quiet = first.quiet
        self.floored = any(is_floored(first.sides[name]) for name in several.SIDES)
        self.begin = self.since = time.monotonic()
        self.start = A_START  # seconds of a group besides its rounds, judging included
        sample = self.samples[0]
        self.noise = several.noise(*(sample.nets[name] for name in several.SIDES))
        self.needed = several.rounds_needed(self.noise)
        self.a_round = first.a_round * (1 - NULL_SHARE)

    @property
    def groups(self) -> list[several.Group]:
        return [sample.group() for sample in self.samples]

    def rounds(self) -> int:
        """Return how many rounds the next group has; 0 for no further group: it is clear or hopeless, or there is no time."""
        if self.floored or several.is_over(self.groups):
            return 0
        left = BUDGET - (time.monotonic() - self.begin)
        for_one = left / (several.MOST - len(self.samples)) - self.start
        count = min(self.needed, int(for_one / max(self.a_round, 1e-9)))
        if count < several.FEWEST:  # then make fewer groups, as long as there is time for a whole one
            count = several.FEWEST if left > self.start + several.FEWEST * self.a_round else 0
        if count and len(self.samples) == 1 and several.is_hopeless(self.groups[0].ratio, self.noise, count):
            return 0
        return count

    def time(self, rounds: Rounds, count: int) -> None:
        """Time a group of `count` rounds. Raises Failure and Misfit."""
        begin = time.monotonic()
        for _ in range(count):
            rounds.one()
        self.a_round = (time.monotonic() - begin) / count
        rounds.last()
        self.quiet = self.quiet and rounds.quiet
        self.samples.append(Sample.of(rounds.times, self.first.null))

    def has_waited(self, seconds: float) -> None:
        """Leave out `seconds` that were spent waiting for other verifications."""
        self.begin += seconds
        self.since += seconds

    def is_judged(self) -> None:
        """Find out how long a group takes besides its rounds: one has ended, and its outputs have been judged."""
        now = time.monotonic()
        self.start = max(0.0, now - self.since - self.samples[-1].rounds * self.a_round)
        self.since = now

    def conclude(self) -> Timing:
        """Return the verdict on speed by all groups; the first group's own where there is no other."""
        if len(self.samples) < 2:
            return self.first
        outcome = several.look(self.groups, last=True)
        found = outcome.interval
        whole = several.interval([sample.in_whole_windows() for sample in self.samples], last=True)
        certain = statistics.median(self._certain(sample) for sample in self.samples)
        verdict = Verdict.SLOWER if outcome.says == "slower" else Verdict.INCONCLUSIVE
        note = ""
        # From the group in which the reference was slowed down most.
        fastest = max(min(sample.walls["reference"]) for sample in self.samples)
        if outcome.says == "faster":
            note = suspicion(self.quiet, fastest, self.first.alone, self.device)
            if note:
                verdict = Verdict.SUSPECT
            elif not whole.low > 1:
                note = f"faster net of the exchange of data, but not in whole windows ({whole.ratio:.2f}x)"
            else:
                verdict = Verdict.FASTER
        elif outcome.says == "unclear":
            note = outcome.why_unclear(f", of {len(self.samples)} groups of processes,")
        return dataclasses.replace(
            self.first,
            ratio=found.ratio,
            low=found.low,
            high=found.high,
            coverage=found.coverage,
            margin=outcome.margin,
            certain=certain,
            verdict=verdict,
            note=note,
            quiet=self.quiet,
            groups=[sample.record() for sample in self.samples],
            fastest=fastest,
        )

    def _certain(self, sample: Sample) -> float:
        """Return the ratio on the assumption that the candidate saved the copies of its outputs."""
        wall = faster_half.typical(sample.walls["candidate"])
        return faster_half.typical(sample.nets["reference"]) / net(wall, self.first.exchange)
