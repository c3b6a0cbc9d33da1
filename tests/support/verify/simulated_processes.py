"""The rules for FASTER on simulated times of processes whose speeds differ for as long as they live.

`python tests/support/verify/simulated_processes.py [RUNS]` prints the table of docs/log/verify.md.
"""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from mm32.verify.timing import sequential, several

DEVICE = "cuda"
FIRST_OF = tuple(sequential.LOOKS)
Times = tuple[list[float], list[float], list[float]]  # reference, control, candidate


@dataclass(frozen=True)
class Said:
    """A rule's final word, and the number of rounds and of groups of processes that it took."""

    word: str
    rounds: int
    groups: int


@dataclass
class Card:
    """A card on which a candidate that is `speed` times as fast is timed.

    `apart`: the most by which the logarithms of two processes' medians differ (each has its own place in an interval of that
    length), or with `normal`, the standard deviation of each one's, which is then normal. `noise`: the standard deviation of the
    logarithm of a window's time, which is normal; besides, two windows in a hundred take 1.5 to 4 times as long. `late`: the mean
    delay (exponential, in the logarithm) of half of the windows, as beside other programs."""

    chance: random.Random
    speed: float
    noise: float
    apart: float
    normal: bool = False
    late: float = 0.0

    def process(self) -> Callable[[], float]:
        """Start a process. Return a function that draws the time of one of its windows."""
        own = self.chance.gauss(0, self.apart) if self.normal else self.chance.uniform(0, self.apart)

        def window() -> float:
            spike = self.chance.uniform(1.5, 4) if self.chance.random() < 0.02 else 1.0
            late = self.chance.expovariate(1 / self.late) if self.late and self.chance.random() < 0.5 else 0.0
            return math.exp(own + self.chance.gauss(0, self.noise) + late) * spike

        return window

    def rounds(self, count: int) -> Times:
        """Return the times of `count` rounds of three fresh processes."""
        reference, control, candidate = (self.process() for _ in range(3))
        return (
            [reference() for _ in range(count)],
            [control() for _ in range(count)],
            [candidate() / self.speed for _ in range(count)],
        )


def by_one(card: Card) -> Said:
    """Decide by the rule for one process of each side."""
    whole = card.rounds(sequential.MAX_ROUNDS)
    for count in FIRST_OF:
        times = _cut(whole, count)
        if sequential.decided(*times, DEVICE):
            break
    return Said(sequential.look(*times, DEVICE).says, count, 1)


def by_several(card: Card) -> Said:
    """Decide by that rule and, where it leaves a small difference, by several processes of each side."""
    whole = card.rounds(sequential.MAX_ROUNDS)
    for count in FIRST_OF:
        first = _cut(whole, count)
        if several.first_is_over(*first, DEVICE):
            break
    groups = [several.group(*first)]
    if several.is_over(groups):
        return Said(sequential.look(*first, DEVICE).says, count, 1)
    needed = several.rounds_needed(several.noise(*first))
    while not several.is_over(groups):
        groups.append(several.group(*card.rounds(needed)))
    return Said(several.look(groups).says, count + needed * (len(groups) - 1), len(groups))


def _cut(times: Times, count: int) -> Times:
    reference, control, candidate = times
    return reference[:count], control[:count], candidate[:count]


def rates(
    rule: Callable[[Card], Said],
    speed: float,
    noise: float,
    apart: float,
    runs: int,
    normal: bool = False,
    late: float = 0.0,
) -> dict[str, float]:
    """Return the shares of "faster" and "slower", and the mean numbers of rounds and groups."""
    chance = random.Random(f"{speed} {noise} {apart} {normal}")
    found = [rule(Card(chance, speed, noise, apart, normal, late)) for _ in range(runs)]
    words = Counter(one.word for one in found)
    return {
        "faster": words["faster"] / runs,
        "slower": words["slower"] / runs,
        "rounds": sum(one.rounds for one in found) / runs,
        "groups": sum(one.groups for one in found) / runs,
    }


UP_TO, NORMAL = "up to", "normal, each process"
CASES = (
    *((noise, apart, UP_TO, 0.0) for noise in (0.02, 0.055) for apart in (0.0, 0.01, 0.02, 0.04)),
    (0.07, 0.04, UP_TO, 0.0),
    (0.055, 0.02, NORMAL, 0.0),
    (0.055, 0.04, NORMAL, 0.0),
    (0.07, 0.04, NORMAL, 0.0),
    (0.01, 0.02, UP_TO, 0.1),
    (0.01, 0.02, UP_TO, 0.4),
)


def main(runs: int) -> None:
    print("| noise a window | two processes differ by | identical | 5 % faster | 6.4 % faster | rounds, groups |")
    print("|---|---|---|---|---|---|")
    for noise, apart, how, late in CASES:
        said = [rates(by_several, speed, noise, apart, runs, how == NORMAL, late) for speed in (1.0, 1.05, 1.064)]
        other = f"{said[0]['faster'] + said[0]['slower']:.1%}"
        faster = [f"{one['faster']:.1%}" for one in said[1:]]
        windows = f"{noise:.1%}" + (f", half of them late by {late:.0%}" if late else "")
        counts = f"{said[1]['rounds']:.0f}, {said[1]['groups']:.1f}"
        print(f"| {windows} | {how} {apart:.0%} | {other} | {' | '.join(faster)} | {counts} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
