"""Waiting until a card's memory is as fast as it was: no window begins while something else uses it.

A driver erases memory that was given back, in the background: on an H200 at about 440 GB/s, so that 8 GiB take 20 ms, in which
other copies of memory are 11 % slower. Every window gives its slots back. What began sooner after that was slower than what
began later, and a candidate that gives memory back at the right moment could have slowed the reference down. So before the
clock of a window starts, this process copies some memory of its own until that takes no longer than it usually does.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

BYTES = 256 << 20  # of each of two buffers, several times a cache; a 64th of a small card's memory
# Copies that are timed together, behind one that is not: a single one, which begins when the card is told, varies by 20 % if the
# card was idle before, and the fastest of them is one that happened to wait behind other work (on an H200; these vary by 1 %).
TOGETHER = 4
CALM = 1.05  # times the fastest ones so far; erasing makes it 1.11
IN_A_ROW = 2  # times that they have to be as fast
LEARNT = 0.1  # seconds in which the fastest copy is looked for: longer than what windows have given back takes
ERASED = 400e9  # bytes a second that are erased at least
# Waits in vain, one after another, after which windows are no longer waited for until the card is calm: others are using it.
VAIN = 8


class Settling:
    """`copy` makes some copies and gives the seconds that they took; `longest`: seconds to wait, those of erasing all of a
    card's memory."""

    def __init__(self, copy: Callable[[], float], longest: float, clock: Callable[[], float] = time.monotonic):
        self.copy, self.longest, self.clock = copy, longest, clock
        self.vain = 0
        # The first windows have given memory back already: a fastest copy of the next moment would be one of a disturbed card.
        begin = clock()
        self.fastest = copy()
        while clock() - begin < LEARNT:
            self.fastest = min(self.fastest, copy())

    def wait(self) -> bool:
        """Until copies are as fast as usual, `longest` seconds at most. Gives whether they are."""
        begin, calm = self.clock(), 0
        while True:
            seconds = self.copy()
            self.fastest = min(self.fastest, seconds)
            calm = calm + 1 if seconds <= CALM * self.fastest else 0
            if calm == IN_A_ROW:
                self.vain = 0
                return True
            if not calm and (self.vain >= VAIN or self.clock() - begin > self.longest):
                self.vain += 1
                return False


def _copies(device: torch.device) -> Callable[[], float]:
    """Some copies on a card, timed by its events. Raises torch.OutOfMemoryError."""
    size = min(BYTES, torch.cuda.get_device_properties(device).total_memory // 64)
    source, target = (torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(2))
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def copy() -> float:
        with torch.cuda.device(device):
            target.copy_(source)
            begin.record()
            for _ in range(TOGETHER):
                target.copy_(source)
            end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    return copy


_of_device: dict[torch.device, Settling | None] = {}


def settle(device: torch.device) -> None:
    """Wait until nothing else uses the memory of `device`, a card; not at all where it has no room for the copies."""
    if device not in _of_device:
        try:
            memory = torch.cuda.get_device_properties(device).total_memory
            _of_device[device] = Settling(_copies(device), memory / ERASED)
        except torch.OutOfMemoryError:
            _of_device[device] = None
            torch.cuda.empty_cache()
    if (found := _of_device[device]) is not None:
        found.wait()


def forget(device: torch.device) -> None:
    """Give the memory of its copies back; where there was no room, the next window looks again."""
    _of_device.pop(device, None)
