"""The worker's end of a runner: start it, give it jobs, notice that it has died or hangs, end it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from ..processes.launch import search_path
from .cards import Card

BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from mm32.verify.batch.runner import main; main(sys.argv[1:])"
)
# Seconds without a line of progress after which a runner counts as hung. One that works says something about every second.
SILENCE = 300.0
ENDING = 20.0  # seconds that a runner has to end its processes, after which it is killed


class Broken(Exception):
    """The runner has failed: it is gone, or cannot take another job."""


class Runner:
    """A runner's process on a card. Raises Broken where it does not start.

    `threads`: how many threads OpenMP has in it and in each process that it starts, which inherit its environment. None leaves
    OMP_NUM_THREADS as it is; if that is unset, they have all cores.
    """

    def __init__(
        self,
        card: Card,
        arch: str,
        stopped: Callable[[], bool],
        silence: float = SILENCE,
        threads: int | None = None,
    ):
        self.card = card
        self.stopped = stopped
        self.silence = silence
        self.sock, theirs = socket.socketpair()
        self.rest = b""
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": card.visible}
        if arch:
            environment["TORCH_CUDA_ARCH_LIST"] = arch
        if threads is not None:
            environment["OMP_NUM_THREADS"] = str(threads)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", BOOT, json.dumps(search_path()), str(theirs.fileno()), arch],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        finally:
            theirs.close()
        try:
            while "ready" not in self._hear(lambda text: None):
                pass
        except BaseException:
            self.kill()
            raise

    def verify(self, order: dict[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
        """Have it verify a job. Returns its answer, with "report" or "error". Raises Broken."""
        try:
            self.sock.sendall((json.dumps(order) + "\n").encode())
        except OSError:
            raise Broken(self._death()) from None
        while True:
            said = self._hear(progress)
            if "report" in said or "error" in said:
                return said

    def _hear(self, progress: Callable[[str], None]) -> dict[str, Any]:
        """Return the next line, and pass progress on. Raises Broken if the worker is to stop, or the runner hangs or has died."""
        end = time.monotonic() + self.silence
        while b"\n" not in self.rest:
            if self.stopped():
                raise Broken("the worker is to stop")
            if time.monotonic() > end:
                self.kill()
                raise Broken(f"it said nothing for {self.silence:.0f} s: the card or the process hangs")
            if not select.select([self.sock], [], [], 0.2)[0]:
                continue
            try:
                data = self.sock.recv(1 << 20)
            except OSError:
                data = b""
            if not data:
                raise Broken(self._death())
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        said = dict(json.loads(line))
        if "progress" in said:
            progress(str(said["progress"]))
        return said

    def _death(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        code = self.process.returncode
        if code is None:
            return "it closed its connection"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"its process died of {signal.Signals(-code).name}"
        return f"its process ended with exit code {code}"

    def kill(self) -> None:
        """Kill it at once; its supervisors end the processes that they look after."""
        with contextlib.suppress(OSError):
            self.process.kill()
        self.process.wait()
        self.sock.close()

    def close(self) -> None:
        """Have it end its processes and itself; kill it if it has not ended after ENDING seconds."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        try:
            self.process.wait(ENDING)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.sock.close()
