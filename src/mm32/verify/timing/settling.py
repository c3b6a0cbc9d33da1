"""Wait until a card's memory is as fast as usual, so that no window begins while something else uses it.

A driver erases memory that was given back, in the background: on an H200 at about 440 GB/s, so that 8 GiB take 20 ms. Meanwhile
other copies of memory are 11 % slower. Every window gives its slots back. Windows that began soon after that were slower than
those that began later, and a candidate could have slowed the reference down by giving memory back at the right moment. So before
the clock of a window starts, this process copies some memory of its own until that takes no longer than usual.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

BYTES = 256 << 20  # of each of two buffers, several times a cache; on a small card a 64th of its memory
# Copies that are timed together, behind one that is not timed. On an H200 they vary by 1 %. A single copy, which begins when the
# card is told to, varies by 20 % if the card was idle before, and the fastest one happened to wait behind other work.
TOGETHER = 4
CALM = 1.05  # copies are calm if they take at most this many times the fastest so far; erasing makes it 1.11
IN_A_ROW = 2  # how many times in a row copies have to be calm
LEARNT = 0.1  # seconds of looking for the fastest copy: longer than erasing what windows have given back takes
ERASED = 400e9  # the least bytes a second that are erased
# After this many waits in vain, one after another, a window no longer waits until the card is calm: others are using it.
VAIN = 8


class Settling:
    """Waits until a card is calm.

    `copy` makes some copies and returns the seconds that they took. `longest`: the most seconds to wait, which erasing all of a
    card's memory takes."""

    def __init__(self, copy: Callable[[], float], longest: float, clock: Callable[[], float] = time.monotonic):
        self.copy, self.longest, self.clock = copy, longest, clock
        self.vain = 0
        # The first windows have given memory back already: the fastest copy of the next moment alone would be a disturbed one.
        begin = clock()
        self.fastest = copy()
        while clock() - begin < LEARNT:
            self.fastest = min(self.fastest, copy())

    def wait(self) -> bool:
        """Wait until copies are as fast as usual, at most `longest` seconds. Return whether they are."""
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
    """Return a function that makes some copies on a card, timed by the card's events. Raises torch.OutOfMemoryError."""
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
    """Wait until nothing else uses the memory of `device`, a card. Do not wait where it has no room for the copies."""
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
    """Give back the memory of the copies on `device`. Where there was no room for them, the next window tries again."""
    _of_device.pop(device, None)
