"""Building a candidate before its turn: loading its script in a process that sees no card, and keeping what the build left.

The slowest step of most candidates is load_inline's compiler, which needs no card. The process that is judged later finds the
finished build in its caches, at the same path. A process that sees no card cannot disturb the timing on a card. Where the CPU is
timed, building pauses during the timing.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..processes.channel import Failure
from ..processes.device_lock import DeviceLock
from ..processes.folder import is_ours, new_folder
from ..processes.process import Limits, WorkerProcess
from .cards import CPU
from .jobs import Job

MOST = 512 << 20  # the most bytes of caches that are handed on to the process that is judged
# Errors that loading raises whether or not there is a card.
WITHOUT_CARD = ("SyntaxError", "IndentationError", "TabError", "ScriptError")


class Stopped(Exception):
    """The worker has been told to end."""


@dataclass
class Built:
    """The result of a build.

    `folder`: the folder of the candidate's later process. `caches`: the path of a file with what the build left in its caches,
    empty if there is none. `failure`: the failure that ended the build, where it would end the candidate's own process too.
    """

    folder: str
    caches: str = ""
    failure: dict[str, Any] | None = None
    printed: str = ""
    seconds: float = 0.0

    def record(self) -> dict[str, Any]:
        return asdict(self)


def build(
    job: Job,
    limits: Limits,
    on_cpu: bool,
    arch: str,
    work: Path,
    stopped: Callable[[], bool],
    threads: int | None = None,
) -> Built:
    """Load a job's candidate within its limits of time and memory. Raises Stopped, NoStart.

    `threads`: as many as the process that is judged has, because code may be generated for their number.
    """
    begin = time.monotonic()
    built = Built(new_folder("candidate"))
    try:
        _load(built, job, limits, on_cpu, arch, work, stopped, threads)
    except BaseException:
        shutil.rmtree(built.folder, ignore_errors=True)
        raise
    built.seconds = time.monotonic() - begin
    return built


def _load(
    built: Built,
    job: Job,
    limits: Limits,
    on_cpu: bool,
    arch: str,
    work: Path,
    stopped: Callable[[], bool],
    threads: int | None,
) -> None:
    """Load the script, and write the result to `built`."""
    lock = DeviceLock(CPU) if on_cpu else None
    worker: WorkerProcess | None = None

    def check() -> None:
        if stopped():
            raise Stopped

    def waiting(_: float) -> None:
        check()
        if lock is None or worker is None or not lock.wanted():
            return
        since = time.monotonic()
        with worker.paused():
            lock.release()
            lock.acquire_shared(check)
        spent = time.monotonic() - since
        worker.asked += spent
        worker.deadline += spent

    try:
        if lock is not None:
            lock.acquire_shared(check)
        extra = {"CUDA_VISIBLE_DEVICES": "", **({"TORCH_CUDA_ARCH_LIST": arch} if arch else {})}
        script, hidden = Path(job.candidate), Path(job.reference)
        worker = WorkerProcess(
            "candidate", limits, waiting, script, hidden, folder=Path(built.folder), extra=extra, threads=threads
        )
        try:
            worker.ask("load", path=job.candidate, kernel=None, class_name="ModelNew")
            packed = worker.packed_caches(MOST, timeout=60)
        except Failure as failure:
            if _is_final(failure, on_cpu):
                said = {"kind": failure.kind, "message": failure.message, "details": failure.details}
                built.failure, built.printed = said, worker.output()
        else:
            if packed is not None:
                path = work / f"{job.id}.caches"
                path.write_bytes(packed.numpy().tobytes())
                built.caches = str(path)
    finally:
        with contextlib.ExitStack() as stack:
            stack.callback(_check_folder, built)
            if lock is not None:
                stack.callback(lock.release)
            if worker is not None:
                stack.callback(worker.close)


def _check_folder(built: Built) -> None:
    """Check the folder after its process has ended: a candidate that has put something else in its place gets a new folder, and
    none of what it built."""
    if not is_ours(built.folder):
        built.folder, built.caches = new_folder("candidate"), ""


def _is_final(failure: Failure, on_cpu: bool) -> bool:
    """Return whether the candidate's own process, which may see a card, would fail in this way too."""
    if on_cpu or failure.kind == "timeout":
        return True
    return failure.kind == "raised" and failure.details.get("type") in WITHOUT_CARD
