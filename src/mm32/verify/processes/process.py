"""A worker's process as the tool handles it: start it, watch it while it works, end it with all that it started.

The code in a worker may hang, crash, fork, print without end or fill the memory; none of that may harm the tool. The tool
watches the deadline of each request, the memory and the number of the worker's processes, how much it prints, and whether
somebody meddles with the reference's process. launch.py starts the processes, each under a supervisor of the tool's own.
RLIMIT_AS is not used, since CUDA reserves far more address space than memory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor

from .. import text
from ..exchange import wire
from . import descendants, untraceable
from .channel import Channel, Failure, Reply
from .folder import new_folder, take_back, variables
from .launch import Launched, launch, needed
from .printed import Drain
from .schedule import Schedules

# The program of each role's process: the worker alone for a candidate, the reference's own program for trusted ones.
PROGRAMS = {
    "candidate": "mm32.verify.worker.main",
    "reference": "mm32.verify.reference",
    "control": "mm32.verify.reference",  # a second process of the reference, timed against the first
    "baseline": "mm32.verify.reference",  # likewise, compiled or with TF32
    "null": "mm32.verify.worker.main",  # no script: what a timed window takes without a model
}
TRUSTED_PROGRAMS = ("mm32.verify.reference",)  # not confined, and guarded against being meddled with
MAX_PRINTED = 64 << 20
SMALL_PAYLOAD = 64 << 20  # the most bytes of an answer that should carry no large tensors
WATCH_INTERVAL = 0.25  # seconds between looks at a worker
COUNT_INTERVAL = 2.0  # seconds between looks at the processes that a trusted worker has started
CORES = os.cpu_count() or 1
MAX_PROCESSES = 64 + 8 * CORES
MAX_THREADS = 4096 + 256 * CORES  # of all processes of a worker's own user: torch alone starts some for each core
# Signals that no process sends to itself.
SENT = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@dataclass
class Limits:
    """What a worker may use: seconds for one request, GiB of resident memory over all of its processes."""

    timeout: float = 300.0
    memory_gib: float = 16.0

    def running(self, reference_seconds: float) -> float:
        """Return the seconds allowed for a call of a model whose reference takes `reference_seconds`; building is not in them."""
        return 60 + 50 * reference_seconds

    @property
    def first_call(self) -> float | None:
        """Seconds allowed for a model's first call, in which it may still compile; None: `timeout`."""
        return None


# Nanoseconds for which all processes of a worker together may run in a pause: a signal may wake one, which then stops again.
STIRRING = 1_000_000


@dataclass
class Pause:
    """A time for which all of a worker's processes were told to stand still. `still`: whether they do; after the end of the
    pause, whether they did until then."""

    still: bool


class WorkerProcess:
    """A worker's process. `role`, a name of PROGRAMS, decides which program it runs and is named in messages.

    `script`: what it will load; it may read that and the files beside it. `hidden`: a file that it must not see. `beside`: the
    other workers of the verification; trusted ones among them are checked whenever this one is paused. `folder`: its folder,
    an empty one that the caller has made and removes; by default a new one. `extra`: environment variables besides the usual
    ones. `threads`: OpenMP's number of threads, where it is not what this process's environment says. `device`: a card on which
    large tensors stay, the tool's and the worker's.
    `isolation`: how it is confined, in words for the report. `disturbed`: what was done to a trusted worker from outside.
    """

    def __init__(
        self,
        role: str,
        limits: Limits,
        on_wait: Callable[[float], None] | None = None,
        script: Path | None = None,
        hidden: Path | None = None,
        beside: Sequence[WorkerProcess] = (),
        folder: Path | None = None,
        extra: dict[str, str] | None = None,
        device: torch.device | None = None,
        threads: int | None = None,
    ):
        self.role = role
        self.limits = limits
        self.on_wait = on_wait
        self.beside = beside
        self.trusted = PROGRAMS[role] in TRUSTED_PROGRAMS
        self.deadline = 0.0
        self.asked = time.monotonic()
        self.disturbed: list[str] = []
        self._watched = self._counted = 0.0
        self._schedules = Schedules()
        self._below: list[psutil.Process] = []
        untraceable.hold()
        self.given = folder is not None
        self.folder = folder or Path(new_folder(role))
        ours, theirs = socket.socketpair()
        pipes = [os.pipe(), os.pipe()]
        order = {
            "program": PROGRAMS[role],
            "confined": not self.trusted,
            "environment": variables(self.folder)
            | (extra or {})
            | ({"OMP_NUM_THREADS": str(threads)} if threads is not None else {}),
            "threads": threads,
            "folder": str(self.folder),
            "temporary": [str(self.folder.parent)],
            "needed": needed(),
            "script": str(script or ""),
            "hidden": "" if hidden is None or hidden == script else str(hidden),
            "processes": MAX_THREADS,
        }
        try:
            self.launched: Launched = launch(
                order, [theirs.fileno(), *(write for _, write in pipes)], lambda: self._say_waiting(time.monotonic())
            )
        except BaseException:
            ours.close()
            for read, _ in pipes:
                os.close(read)
            self._remove_folder()
            untraceable.release()
            raise
        finally:
            theirs.close()
            for _, write in pipes:
                os.close(write)
        self.isolation: list[str] = [text.one_line(word) for word in self.launched.isolation]
        self.printed = [Drain(read) for read, _ in pipes]
        self.channel = Channel(ours, self._idle, self.trusted, device)
        self._open = True
        self.check_undisturbed()  # remembers how it is scheduled now, which is to stay so

    @property
    def pid(self) -> int:
        """The worker's process number, as the tool sees it; 0 where it cannot be told."""
        return self.launched.worker or next((process.pid for process in self._members()), 0)

    @property
    def is_sound(self) -> bool:
        """Whether it lives, and nobody has meddled with it."""
        return self._open and not self.launched.poll() and not self.disturbed

    # ------------------------------------------------------------------------------------------------------ asking

    def packed_caches(self, limit: int, timeout: float) -> Tensor | None:
        """Return what a build left in the worker's caches, as the worker packs them; None if it sends anything else.

        These are at most `limit` bytes, and the tool does not look into them. Raises Failure."""
        packed = self.ask("pack_caches", limit=limit, max_payload=limit + (1 << 20), timeout=timeout).value
        whole = isinstance(packed, Tensor) and packed.dim() == 1 and packed.dtype is torch.uint8
        return packed.cpu().contiguous() if whole else None

    def ask(
        self,
        op: str,
        value: Any = None,
        *,
        timeout: float | None = None,
        max_payload: int | None = None,
        descriptors: Sequence[int] = (),
        unwatched: float = 0.0,
        **fields: Any,
    ) -> Reply:
        """Send a request and wait for its answer, at most `timeout` seconds; see Channel.ask. Raises Failure.

        For the first `unwatched` seconds, the worker is only waited for: see `watch`."""
        if max_payload is None and self.role == "candidate":
            max_payload = SMALL_PAYLOAD
        self.asked = time.monotonic()
        self.unwatched = self.asked + unwatched
        self.deadline = self.asked + min(self.limits.timeout, timeout if timeout is not None else self.limits.timeout)
        try:
            return self.channel.ask(op, value, fields, max_payload, descriptors)
        except Failure as error:
            failure = error
        except wire.ProtocolError as error:
            self.end()
            failure = Failure("channel", f"sent something that is no answer ({error})")
        except wire.Closed:
            failure = self._death()
        failure.role = self.role
        raise failure from None

    # ------------------------------------------------------------------------------------------------------ watching

    def _idle(self) -> None:
        now = time.monotonic()
        self._say_waiting(now)
        if now > self.deadline:
            spent = now - self.asked
            self.end()
            raise Failure("timeout", f"no answer after {spent:.0f} s")
        if self.launched.poll():
            # Its last answer may still be in the socket; the next read finds that or the end of the stream.
            if self._watched == float("inf"):
                raise self._death()
            self._watched = float("inf")
            return
        if now >= self.unwatched:
            self.watch()

    def watch(self) -> None:
        """Look at what the worker is doing, if the last look was long enough ago. Raises Failure where it exceeds a limit.

        A look takes milliseconds, more at a candidate than at the reference. So timed requests are made `unwatched`, each after
        a look that is not timed."""
        try:
            self._look()
        except Failure as failure:
            failure.role = self.role
            raise

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._watched < WATCH_INTERVAL:
            return
        self._watched = now
        self.check_undisturbed()
        if sum(drain.total for drain in self.printed) > MAX_PRINTED:
            self.end()
            raise Failure("printed", f"printed more than {MAX_PRINTED >> 20} MiB")
        if self.trusted and now - self._counted < COUNT_INTERVAL:
            return
        self._counted = now
        members = self._members()
        if len(members) > MAX_PROCESSES:
            self.end()
            raise Failure("processes", f"started more than {MAX_PROCESSES} processes")
        used = 0
        for member in members:
            with contextlib.suppress(psutil.Error):
                used += member.memory_info().rss
        if used > self.limits.memory_gib * 2**30:
            self.end()
            raise Failure(
                "memory",
                f"used {used / 2**30:.1f} GiB of memory, more than the limit of {self.limits.memory_gib:g} GiB",
            )

    def _say_waiting(self, now: float) -> None:
        if self.on_wait:
            self.on_wait(now - self.asked)

    def _members(self) -> list[psutil.Process]:
        """Return the worker's living processes: all below its supervisor, which also becomes the parent of orphans."""
        found = descendants.below(self.launched.supervisor)
        self._below = found or self._below  # processes that an ended supervisor leaves behind are still to be ended
        return found

    def _death(self) -> Failure:
        give_up = time.monotonic() + 2
        while not self.launched.poll() and time.monotonic() < give_up:
            time.sleep(0.01)
        code, lost = self.launched.exit_code, self.launched.lost
        self.end()
        if code is None:
            said = "lost the process that watches over it" if lost else "closed its connection to the tool"
            return Failure("channel", said)
        if code < 0:
            name = signal.Signals(-code).name if -code in {s.value for s in signal.Signals} else f"signal {-code}"
            kind = "killed" if self.trusted and -code in SENT else "crashed"
            return Failure(kind, f"the process died of {name}", {"signal": name})
        return Failure("crashed", f"the process ended itself with exit code {code}", {"exit_code": code})

    def check_undisturbed(self) -> None:
        """Undo changes from outside to how a trusted worker is scheduled, and note them in `disturbed`.

        These are the cores that its threads may use, their priority and policy, and whether it was stopped."""
        if not self.trusted or not self.launched.worker or self.launched.poll():
            return
        for how in self._schedules.put_back(self.launched.worker):
            if how not in self.disturbed:
                self.disturbed.append(how)

    def output(self) -> str:
        """Return what the worker printed, standard output first, safe to show."""
        return "\n".join(text.log(printed) for drain in self.printed if (printed := drain.text().strip()))

    # ------------------------------------------------------------------------------------------------------ ending

    def end(self) -> None:
        """Kill the worker and everything that it started. Safe to call more than once."""
        self.launched.end()
        if self.launched.lost:  # its supervisor ended before it was told to: the processes below are killed one by one
            for process in self._below:
                with contextlib.suppress(psutil.Error):
                    process.kill()

    @contextlib.contextmanager
    def paused(self) -> Iterator[Pause]:
        """Stop all of the worker's processes meanwhile, so that nothing it left running disturbs the timing of another.

        A timer of a process's own can have the kernel continue it. So in the end their times say whether they have run."""
        pause = Pause(self.launched.command(b"stop", "stopped"))
        ran = descendants.run_times(self.launched.supervisor)
        for worker in self.beside:
            worker.check_undisturbed()
        try:
            yield pause
        finally:
            since = descendants.run_times(self.launched.supervisor)
            pause.still &= sum(max(0, now - ran.get(thread, 0)) for thread, now in since.items()) <= STIRRING
            self.launched.command(b"continue", "continued")

    def close(self) -> None:
        """End the worker and remove its folder. Safe to call more than once."""
        if not self._open:
            return
        self._open = False
        with contextlib.suppress(OSError):
            self.channel.sock.close()
        give_up = time.monotonic() + 1
        while not self.launched.poll() and time.monotonic() < give_up:
            time.sleep(0.005)  # it ends by itself when its connection closes
        self.end()
        for drain in self.printed:
            drain.close()
        self._remove_folder()
        untraceable.release()

    def _remove_folder(self) -> None:
        """Remove the folder; one that was given is emptied and made this user's again."""
        if self.given:
            take_back(self.folder)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)


def close_all(workers: Sequence[WorkerProcess]) -> None:
    """Close every worker, even where closing one of them raises."""
    with contextlib.ExitStack() as stack:
        for worker in workers:
            stack.callback(worker.close)
