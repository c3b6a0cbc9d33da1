"""Data of probes that the candidate has passed, for timed windows: as many as there is room for, each with the same chance."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..exchange.wire import bytes_of
from ..judging.bounds import Truth

PASSED_BYTES = 128 << 20  # the most bytes of probes' inputs that are kept for timed windows
LARGEST_PASSED = 512 << 20  # the most bytes of one probe's inputs that are kept


@dataclass
class PassedProbe:
    """Data of a probe that the candidate has passed.

    `truths`: makes the truths of the outputs on these data from (seed, output). For any model but a product, noise=False
    leaves the perturbed run out.
    """

    name: str
    inputs: Any
    truths: Callable[..., list[Truth]]


class PassedProbes:
    """The data that are kept of all probes that were passed, in `found`."""

    def __init__(self) -> None:
        self.found: list[PassedProbe] = []
        self.passed = 0  # probes that were passed; as many of their data are kept as there is room for
        self.passed_large = 0  # the same for larger data, of which one probe's are kept
        self.draws: Counter[str] = Counter()  # of each probe's data

    def keep(self, name: str, truths: Callable[..., list[Truth]], inputs: Any) -> None:
        """Keep these data of the probe `name` if there is room for them, or if chance has it."""
        size = bytes_of(inputs)
        self.draws[name] += 1
        if self.draws[name] > 1:  # each draw has truths of its own, so it has a name of its own
            name += f", draw {self.draws[name]}"
        if size <= PASSED_BYTES:
            self.passed += 1
        if size * (len(self.found) + 1) <= PASSED_BYTES:
            self.found.append(PassedProbe(name, inputs, truths))
        elif size <= PASSED_BYTES:  # as many as there is room for, of all that were passed, each with the same chance
            if (place := random.SystemRandom().randrange(self.passed)) < len(self.found):
                self.found[place] = PassedProbe(name, inputs, truths)
        elif PASSED_BYTES < size <= LARGEST_PASSED:  # one of all, each with the same chance
            self.passed_large += 1
            if random.SystemRandom().randrange(self.passed_large) == 0:
                self.found = [PassedProbe(name, inputs, truths)]
