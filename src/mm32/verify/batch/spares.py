"""Processes of a reference that one verification of a batch leaves to the next.

Each process has a context on the card. The driver creates the contexts of all cards of a host one after another, a quarter of a
second each; meanwhile, windows on the other cards wait when their memory is mapped (docs/log/verify.md). So the processes that
would be started again for the same reference are kept: the reference's own, the control's and the null worker's. Each begins
anew, with a new ScriptRunner, as if it had just been started.

They are kept only where the candidate could not have reached them: it was another user, in a PID namespace, with files that were
read-only for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from ..processes.channel import Failure
from ..processes.process import Limits, WorkerProcess
from ..report import Report
from ..timing.stage import Estimate
from ..verdict import Verdict
from .jobs import digest

ROLES = ("reference", "control", "null")
# Words of a candidate's isolation, all of which are needed.
OUT_OF_REACH = {"PID namespace", "read-only files", "another user"}
BEGINNING = 20.0  # the most seconds that a process may take to begin anew


class Spares:
    """The spare processes of one runner. `close` ends them."""

    def __init__(self) -> None:
        self._kept: dict[str, WorkerProcess] = {}  # by role
        self._script = ""  # the digest of the reference that all but the null worker have run
        self._estimates: dict[str, Estimate] = {}  # of that reference, by baseline

    def take(
        self,
        role: str,
        script: Path,
        limits: Limits,
        on_wait: Callable[[float], None],
        beside: Sequence[WorkerProcess],
    ) -> WorkerProcess | None:
        """Return a process for the `role` of a verification of the reference `script`, or None if there is none. From now on it
        is the caller's."""
        self._for(script)
        worker = self._kept.pop(role, None)
        if worker is None:
            return None
        if not worker.is_sound:
            worker.close()
            return None
        worker.limits, worker.on_wait, worker.beside = limits, on_wait, beside
        return worker

    def keep(self, workers: Sequence[WorkerProcess], script: Path, report: Report) -> list[WorkerProcess]:
        """Keep, of a verification's `workers`, the first of each role that works. Returns the others, which the caller ends."""
        safe = OUT_OF_REACH.issubset(report.isolation)
        if not safe or not report.verdict.of_candidate or report.verdict is Verdict.SUSPECT:
            return list(workers)
        self._for(script)
        left = []
        for worker in workers:
            if worker.role in ROLES and worker.role not in self._kept and self._begins_anew(worker):
                self._kept[worker.role] = worker
            else:
                left.append(worker)
        return left

    @staticmethod
    def _begins_anew(worker: WorkerProcess) -> bool:
        worker.on_wait = None
        vars(worker).pop("ask", None)  # the wrapper by which Truths watched its answers
        try:
            worker.check_undisturbed()
            if worker.is_sound:
                worker.ask("begin", timeout=BEGINNING)
            return worker.is_sound
        except Failure:
            return False

    def estimates_of(self, script: Path) -> dict[str, Estimate]:
        """Return what earlier verifications found that a call of the reference takes, by baseline; later ones may add to it."""
        self._for(script)
        return self._estimates

    def _for(self, script: Path) -> None:
        found = digest(script)
        if found != self._script:
            self._end([role for role in self._kept if role != "null"])
            self._script, self._estimates = found, {}

    def _end(self, roles: Sequence[str]) -> None:
        for role in roles:
            with contextlib.suppress(OSError):
                self._kept.pop(role).close()

    def close(self) -> None:
        self._end(list(self._kept))
