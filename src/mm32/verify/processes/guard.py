"""Find out whether somebody meddled with a verification from outside: with its files, or with the tool's own processes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..text import one_line
from .channel import Failure
from .sandbox import PID_NAMESPACE, USER

if TYPE_CHECKING:
    from .process import WorkerProcess


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        return f"unreadable: {error.strerror}"


class Guard:
    """Remembers the scripts as they were before the candidate ran."""

    def __init__(self, scripts: Iterable[Path]):
        self.digests = {path: _digest(path) for path in scripts}

    def meddled(self, workers: Sequence[WorkerProcess]) -> str:
        """Return what was done to the scripts and the trusted `workers`, as a reason for the report; "" if nothing."""
        said = []
        for worker in workers:
            worker.check_undisturbed()
            said += [f"the {worker.role}'s process {how}" for how in worker.disturbed]
        said += [
            f"{one_line(path)} was changed meanwhile" for path, was in self.digests.items() if _digest(path) != was
        ]
        return ", and ".join(said)

    def killed(self, failure: Failure, isolation: Sequence[str]) -> str:
        """Return a sentence on who may have ended a trusted process by a signal that no process sends to itself."""
        name = failure.details.get("signal", "a signal")
        if PID_NAMESPACE in isolation or USER in isolation:
            return (
                f"the {failure.role}'s process was ended by {name}: the system's doing (memory ran out?) or a person's"
            )
        return f"the {failure.role}'s process was ended by {name} from outside: by the candidate, or by a system out of memory"
