"""The processes below one, without a look at all that there are.

psutil reads /proc of every process of the machine for it: some 30 microseconds each, several times a second for each worker of
each verification.
"""

from __future__ import annotations

import contextlib
import os
from functools import lru_cache

import psutil

READINGS = 6  # of a list of children, at most


def below(pid: int) -> list[psutil.Process]:
    """All processes that `pid` started, and those started; empty where it has ended."""
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


def _children(pid: int) -> set[int]:
    """Of each thread, for it is a thread that starts a process.

    The system leaves one out, alive or not, if another is reaped while it writes the list. So the list is read until it stays the
    same, and what any of the readings had is in it."""
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
    """Whether the system says what a thread has started (CONFIG_PROC_CHILDREN)."""
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")
