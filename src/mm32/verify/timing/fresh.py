"""Make fresh results of the reference's get_inputs() between windows; each goes into one timed call.

A candidate that keeps answers by their inputs gains nothing then. The results are made in the process that says what is right,
each from a seed of its own that nobody else has: with one seed for all, the numbers that a call has seen would determine those
of later calls. Making them takes no time of a window, but time of the verification, so it is bounded.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from ..exchange.stacked import unstacked
from ..inputs.pools import Pools
from ..processes.channel import Failure, Reply

# Seconds that making a window's inputs may always take. Where the reference's calls of a window take longer, making their inputs
# may take as long.
BRIEF = 0.05
SLOW = 0.25  # seconds for one result, above which none is made unless the window's calls take longer than that
CHUNK = 16 << 20  # the most bytes of results in one request; a single result may have more


class Asked(Protocol):
    """The part of WorkerProcess that Fresh needs."""

    def ask(self, op: str, *, seeds: Sequence[int], orders: Sequence[Sequence[int]]) -> Reply: ...


class Left(Protocol):
    """The part of WorkerProcess that `states` needs."""

    def ask(self, op: str, *, seeds: Sequence[int]) -> Reply: ...


class Fresh:
    """Makes results like those of `pools`, by requests to `worker`. `each`: about the seconds that one result takes."""

    def __init__(self, worker: Asked, pools: Pools, each: float):
        self.worker, self.each = worker, each
        self.call = 0.0  # seconds of a call of the reference
        own = pools.of_inputs
        self.orders, self.like = pools.orders[:own], [pool[0] for pool in pools.pools[:own]]
        self.chunk = max(1, CHUNK // max(1, pools.bytes))

    def __call__(self, count: int) -> list[list[Tensor]]:
        """Make up to `count` results: fewer where there is no time for all, at least one unless one is slow. Raises Failure."""
        found: list[list[Tensor]] = []
        begin, allowed = time.monotonic(), max(BRIEF, count * self.call)
        while len(found) < count:
            now = time.monotonic()
            affordable = int((begin + allowed - now) / self.each)
            if affordable < 1 and (found or self.each > SLOW):
                break
            made = self._made(min(count - len(found), max(affordable, 1), self.chunk))
            self.each = max((time.monotonic() - now) / max(len(made), 1), 1e-6)
            if not made:
                break
            found += made
        return found

    def _made(self, count: int) -> list[list[Tensor]]:
        """Make `count` results; return [] where the script fails, or makes tensors of another shape or type."""
        seeds = [secrets.randbelow(2**31) for _ in range(count)]
        try:
            rows: list[Tensor] = self.worker.ask("make_more", seeds=seeds, orders=self.orders).value
        except Failure as failure:
            if failure.kind != "raised":
                raise
            return []
        alike = len(rows) == len(self.like) and all(
            (t.shape[1:], t.dtype) == (like.shape, like.dtype) for t, like in zip(rows, self.like, strict=True)
        )
        if not alike:
            return []
        moved = [t.to(like.device) for t, like in zip(rows, self.like, strict=True)]
        # Copies, not views: a call whose output is kept keeps its inputs too, and a view would keep those of all calls.
        return [[t[i].clone() if len(t) > 1 else t[0] for t in moved] for i in range(len(moved[0]))] if moved else []


def states(worker: Left, each: float, count: int) -> list[dict[str, Tensor]]:
    """Return up to `count` states that calls of the reference leave, one after the other; [] where a call fails.

    The calls are on inputs that nobody else has, each of which takes `each` seconds to make. Raises Failure."""
    count = max(1, min(count, int(2 * SLOW / max(each, 1e-6))))
    try:
        reply = worker.ask("leave_states", seeds=[secrets.randbelow(2**31) for _ in range(count)])
    except Failure as failure:
        if failure.kind != "raised":
            raise
        return []
    return unstacked(reply.value, reply.header["layout"])
