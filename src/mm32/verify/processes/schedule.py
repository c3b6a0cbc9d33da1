"""How the system schedules a trusted worker's threads, and putting it back where somebody else has changed it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

PINS = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")  # with these, a library pins threads itself


@dataclass(frozen=True)
class Schedule:
    """How the system schedules a thread."""

    cores: frozenset[int]
    nice: int
    policy: int

    @classmethod
    def of(cls, thread: int) -> Schedule:
        nice = os.getpriority(os.PRIO_PROCESS, thread)
        return cls(frozenset(os.sched_getaffinity(thread)), nice, os.sched_getscheduler(thread))

    def difference(self, other: Schedule) -> str:
        pairs = (("its cores", self.cores, other.cores), ("its priority", self.nice, other.nice))
        return " and ".join(name for name, a, b in pairs if a != b) or "its scheduling"

    def give(self, thread: int) -> None:
        """Put a thread back to this, as far as the system lets us: only root may raise a priority."""
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, self.cores)
        with contextlib.suppress(OSError):
            os.sched_setscheduler(thread, self.policy, os.sched_param(0))
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, self.nice)


class Schedules:
    """How the threads of a process are scheduled when they are first seen. All are to be as the first thread was, but those that
    CUDA or a library schedules itself."""

    def __init__(self) -> None:
        self._right: dict[int, Schedule] = {}

    def put_back(self, process: int) -> Iterator[str]:
        """Let the process go on if it was stopped, and put its threads back. Yields what was changed, in words."""
        with contextlib.suppress(OSError, psutil.Error):
            if psutil.Process(process).status() == psutil.STATUS_STOPPED:
                os.kill(process, signal.SIGCONT)
                yield "was stopped by a signal"
        with contextlib.suppress(OSError):
            main = self._right.setdefault(process, Schedule.of(process))
            for name in os.listdir(f"/proc/{process}/task"):
                thread = int(name)
                now = Schedule.of(thread)
                own = any(pin in os.environ for pin in PINS) or _is_a_drivers(process, thread)
                right = self._right.setdefault(thread, now if own else main)
                if now != right:
                    right.give(thread)
                    yield f"had {right.difference(now)} changed from outside"


def _is_a_drivers(process: int, thread: int) -> bool:
    """Return whether a thread is CUDA's, which schedules its own as it likes. Only a process itself can rename its threads."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/task/{thread}/comm").read_text().startswith("cuda")
    return False
