"""A lock on a device: verifications on one machine compare at the same time, but only one at a time measures.

It is a lock on a file in the folder for temporary files, one file for each user and card (and one for the CPU), and a
turnstile, a lock on a second file, that every verification passes on the way to the first. One that wants to measure stays in
the turnstile until those that compare have left, and no new one comes in meanwhile. So the wait is bounded by what the present
ones have left to do, however many come after them. Where no such file can be made or locked, nothing is locked, and
verifications may disturb each other's times.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 900.0  # seconds to wait for other verifications before measuring at the same time
POLL = 0.02


class DeviceLock:
    """One verification's lock on `card`: shared while it compares, exclusive while it measures."""

    def __init__(self, card: str, folder: Path | None = None):
        name = f"mm32-device-{os.getuid()}-{re.sub(r'[^A-Za-z0-9-]', '_', card)}"
        self._paths = [(folder or Path(tempfile.gettempdir())) / f"{name}.{end}" for end in ("lock", "turn")]
        self._files: list[int] = []  # those of the lock and of the turnstile; empty where there are no locks

    def acquire_shared(self, waiting: Callable[[], None] = lambda: None, patience: float = PATIENCE) -> bool:
        """Wait, like `acquire_exclusive`, while another verification measures or waits to. Return False if it is not held."""
        self.release()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            for path in self._paths:
                self._files.append(os.open(path, flags, 0o600))
        except OSError:
            self.release()
            return True
        return self._acquire(fcntl.LOCK_SH, waiting, patience)

    def acquire_exclusive(self, waiting: Callable[[], None] = lambda: None, patience: float = PATIENCE) -> bool:
        """Wait, calling `waiting`, until no other verification holds the lock; return False after `patience` seconds.

        The shared lock is given up meanwhile, so that two verifications that wait for each other both get their turn."""
        if not self._files:
            return True
        fcntl.flock(self._files[0], fcntl.LOCK_UN)
        return self._acquire(fcntl.LOCK_EX, waiting, patience)

    def _acquire(self, how: int, waiting: Callable[[], None], patience: float) -> bool:
        end = time.monotonic() + patience
        try:
            held = self._lock(1, fcntl.LOCK_EX, waiting, end) and self._lock(0, how, waiting, end)
            fcntl.flock(self._files[1], fcntl.LOCK_UN)
        except OSError:  # a file system without locks
            self.release()
            return True
        return held

    def _lock(self, which: int, how: int, waiting: Callable[[], None], end: float) -> bool:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._files[which], how | fcntl.LOCK_NB)
                return True
            if time.monotonic() > end:
                return False
            waiting()
            time.sleep(POLL)

    def wanted(self) -> bool:
        """Return whether another verification waits to measure.

        A verification that holds the shared lock and can interrupt its work then gives up the lock meanwhile."""
        if not self._files:
            return False
        try:
            fcntl.flock(self._files[1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        fcntl.flock(self._files[1], fcntl.LOCK_UN)
        return False

    def release(self) -> None:
        for file in self._files:
            os.close(file)
        self._files = []
