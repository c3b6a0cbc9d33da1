"""Several verifications at once on one machine: they compare side by side, and one at a time measures.

By a lock on a file of the user's own in the folder for temporary files, a file for each card (and one for the CPU). Without
such a file there are no turns; times are then what they are.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 900.0  # seconds to wait for the others, before measuring beside them
POLL = 0.05


class Turn:
    """A verification's place among those that use `card`."""

    def __init__(self, card: str, folder: Path | None = None):
        name = f"mm32-turns-{os.getuid()}-{re.sub(r'[^A-Za-z0-9-]', '_', card)}.lock"
        self._path = (folder or Path(tempfile.gettempdir())) / name
        self._file: int | None = None

    def share(self, waiting: Callable[[], None] = lambda: None, patience: float = PATIENCE) -> bool:
        """Takes part once nobody measures; waits as `alone` does. Where it gives up nobody knows that it takes part."""
        self.leave()
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(self._path, flags, 0o600)
        except OSError:
            return True
        return self._take(fcntl.LOCK_SH, waiting, patience)

    def alone(self, waiting: Callable[[], None] = lambda: None, patience: float = PATIENCE) -> bool:
        """Waits, calling `waiting`, until all others left or wait as well; False if that took more than `patience` seconds."""
        if self._file is None:
            return True
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return self._take(fcntl.LOCK_EX, waiting, patience)

    def _take(self, how: int, waiting: Callable[[], None], patience: float) -> bool:
        assert self._file is not None
        end = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(self._file, how | fcntl.LOCK_NB)
                return True
            except OSError as error:
                if not isinstance(error, BlockingIOError):  # a file system without locks
                    self.leave()
                    return True
                if time.monotonic() > end:
                    return False
                waiting()
                time.sleep(POLL)

    def leave(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
