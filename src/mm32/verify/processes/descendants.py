"""Find the processes that a process has started, without a look at all processes of the machine.

psutil would read /proc of every process of the machine: some 30 microseconds each, several times a second for each worker of
each verification.
"""

from __future__ import annotations

import contextlib
import os
from functools import lru_cache
from pathlib import Path

import psutil

READINGS = 6  # the most readings of a list of children


def below(pid: int) -> list[psutil.Process]:
    """Return all processes that `pid` started, directly or through others; [] where it has ended."""
    try:
        if not _listed():
            return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    found: dict[int, psutil.Process] = {}
    waiting = [pid]
    while waiting:
        for child in _children(waiting.pop()):
            if child not in found:
                with contextlib.suppress(psutil.Error):  # it has ended
                    found[child] = psutil.Process(child)
                    waiting.append(child)
    return list(found.values())


def run_times(pid: int) -> dict[tuple[int, str], int]:
    """Return the nanoseconds for which each thread of the processes that `pid` started has run, by process and thread. Threads
    whose times this user may not read, or that have ended meanwhile, are left out."""
    times: dict[tuple[int, str], int] = {}
    for process in below(pid):
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{process.pid}/task"):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    times[process.pid, thread] = int(
                        Path(f"/proc/{process.pid}/task/{thread}/schedstat").read_text().split()[0]
                    )
    return times


def _children(pid: int) -> set[int]:
    """Return the children of all threads of a process: the system lists them by the thread that started them.

    The system leaves a child out, alive or not, if another is reaped while it writes the list. So the list is read until it stays
    the same, and the children of all readings are returned."""
    found: set[int] = set()
    before: set[int] | None = None
    for _ in range(READINGS):
        now = _read_children(pid)
        found |= now
        if now == before:
            break
        before = now
    return found


def _read_children(pid: int) -> set[int]:
    children: set[int] = set()
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as file:
                children.update(map(int, file.read().split()))
    return children


@lru_cache(None)
def _listed() -> bool:
    """Return whether the system lists the children of a thread (CONFIG_PROC_CHILDREN)."""
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")
