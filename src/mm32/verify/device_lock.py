"""A lock on a device: verifications on one machine compare at the same time, but only one at a time measures.

It is a lock on a file in the folder for temporary files, one file for each user and card (and one for the CPU). Where no
such file can be made or locked, nothing is locked, and verifications may disturb each other's times.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 900.0  # seconds to wait for other verifications before measuring at the same time
POLL = 0.05


class DeviceLock:
    """One verification's lock on `card`: shared while it compares, exclusive while it measures."""

    def __init__(self, card: str, folder: Path | None = None):
        name = f"mm32-device-{os.getuid()}-{re.sub(r'[^A-Za-z0-9-]', '_', card)}.lock"
        self._path = (folder or Path(tempfile.gettempdir())) / name
        self._file: int | None = None

    def acquire_shared(self, waiting: Callable[[], None] = lambda: None, patience: float = PATIENCE) -> bool:
        """Waits while another verification holds the lock exclusively; as `acquire_exclusive`. False: it is not held."""
        self.release()
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(self._path, flags, 0o600)
        except OSError:
            return True
        return self._lock(fcntl.LOCK_SH, waiting, patience)

    def acquire_exclusive(self, waiting: Callable[[], None] = lambda: None, patience: float = PATIENCE) -> bool:
        """Waits, calling `waiting`, until no other verification holds the lock; False after `patience` seconds. The shared
        lock is given up meanwhile, so that two that wait for each other both get their turn."""
        if self._file is None:
            return True
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return self._lock(fcntl.LOCK_EX, waiting, patience)

    def _lock(self, how: int, waiting: Callable[[], None], patience: float) -> bool:
        assert self._file is not None
        end = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(self._file, how | fcntl.LOCK_NB)
                return True
            except OSError as error:
                if not isinstance(error, BlockingIOError):  # a file system without locks
                    self.release()
                    return True
                if time.monotonic() > end:
                    return False
                waiting()
                time.sleep(POLL)

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
