"""How many verifications run at once on this machine: the rest wait for a place.

A reward function is called from many threads and processes at once, and each verification has four processes that import
torch. A place is a lock on a file of this user and card in the folder for temporary files. A turnstile, a lock on one more
file, lets one caller at a time look for a free place. The locks end with their process, however that ends. Where no such file
can be made or locked, nobody waits.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

POLL = 0.05
A_CARD = 2  # verifications at once on a card: one compiles, or waits, while the other one has the card


def card() -> str:
    """Return the card that a verification of this process would use, as far as is known without starting CUDA; or "cpu"."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    return first if first not in ("", "-1") and os.path.exists("/dev/nvidiactl") else "cpu"


def count(of: str) -> int:
    """Return how many verifications may run at once on a card, or on the CPU."""
    cores = len(os.sched_getaffinity(0))
    return max(2, cores // 2) if of == "cpu" else A_CARD


@contextlib.contextmanager
def place(waiting: Callable[[float], None] = lambda seconds: None, folder: Path | None = None) -> Iterator[int]:
    """Hold a place meanwhile; yield its number, or -1 where there are no locks. `waiting` is called with the seconds waited."""
    held = -1
    files: list[int] = []
    try:
        with contextlib.suppress(OSError):
            held = _take(waiting, folder or Path(tempfile.gettempdir()), files)
        yield held
    finally:
        for file in files:
            os.close(file)


def _take(waiting: Callable[[float], None], folder: Path, files: list[int]) -> int:
    """Take a place: put its lock into `files`, and return its number."""
    of = card()
    name = f"mm32-place-{os.getuid()}-{re.sub(r'[^A-Za-z0-9-]', '_', of)}"
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    begin = time.monotonic()
    turn = os.open(folder / f"{name}.turn", flags, 0o600)
    try:
        while not _locked(turn):
            waiting(time.monotonic() - begin)
            time.sleep(POLL)
        while True:
            for number in range(count(of)):
                file = os.open(folder / f"{name}.{number}.lock", flags, 0o600)
                if _locked(file):
                    files.append(file)
                    return number
                os.close(file)
            waiting(time.monotonic() - begin)
            time.sleep(POLL)
    finally:
        os.close(turn)


def _locked(file: int) -> bool:
    """Return whether this file description now has the lock. Two of them exclude each other even in one process."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
