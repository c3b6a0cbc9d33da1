"""A worker's process as the tool handles it: start it, watch it while it works, end it with all that it started.

The code in a worker may hang, crash, fork, print without end or fill the memory; none of that may harm the tool. Watched
are the deadline of each request, the memory and the number of the worker's processes, and how much it prints.
RLIMIT_AS is not used, since CUDA reserves far more address space than memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import psutil

from . import text, wire
from .channel import Channel, Failure, Reply

# What a worker's interpreter runs: the candidate's process the worker alone, the reference's process its own program.
PROGRAMS = {
    "candidate": "mm32.verify.worker.main",
    "reference": "mm32.verify.reference",
    "control": "mm32.verify.reference",  # a second process of the reference, timed against the first
    "null": "mm32.verify.worker.main",  # no script: what a timed window takes without a model
}
BOOT = "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1)); from {} import main; main(sys.argv[1:])"
# Environment variables that make products of fp32 matrices TF32 ones.
TF32_SWITCHES = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
TOKEN_VARIABLE = "MM32_VERIFY_WORKER"
MAX_PRINTED = 64 << 20
KEPT_PRINTED = 32 << 10
SMALL_PAYLOAD = 64 << 20  # bytes of an answer that should carry no large tensors
WATCH_INTERVAL = 0.25
MAX_PROCESSES = 64 + 8 * (os.cpu_count() or 1)


@dataclass
class Limits:
    """What a worker may use: seconds for one request, GiB of resident memory over all of its processes."""

    timeout: float = 300.0
    memory_gib: float = 16.0


class Drain(threading.Thread):
    """Reads what a worker prints, so that the worker never blocks, and keeps the first and the last 32 KiB of it."""

    def __init__(self, stream: BinaryIO):
        super().__init__(daemon=True)
        self.stream = stream
        self.total = 0
        self.head = b""
        self.tail = b""
        self.start()

    def run(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(self.stream.fileno(), 1 << 16):
                self.total += len(data)
                room = KEPT_PRINTED - len(self.head)
                self.head += data[:room] if room > 0 else b""
                rest = data[max(room, 0) :]
                self.tail = (self.tail + rest)[-KEPT_PRINTED:]

    def text(self) -> str:
        dropped = self.total - len(self.head) - len(self.tail)
        middle = f"\n[... {dropped} bytes left out ...]\n".encode() if dropped > 0 else b""
        return (self.head + middle + self.tail).decode(errors="replace")


def search_path() -> list[str]:
    """This process's sys.path without relative entries: files in a worker's folder must not shadow a module."""
    return [str(Path(entry)) for entry in sys.path if entry and os.path.isabs(entry)]


def variables(folder: Path, token: str) -> dict[str, str]:
    """The worker's environment variables: this process's own, with every cache and temporary folder inside `folder`."""
    env = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTHON") and name not in TF32_SWITCHES
    }
    env["PATH"] = os.pathsep.join([env.get("PATH", os.defpath), sysconfig.get_path("scripts")])
    for name in ("HOME", "TMPDIR", "TEMP", "TMP"):
        env[name] = str(folder)
    for name in ("XDG_CACHE_HOME", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        env[name] = str(folder / "cache" / name.lower())
    # On a busy CPU, OpenMP threads that spin at a barrier keep the thread they wait for from its core. The same code was
    # then 8 ms instead of 20 µs in one of two processes, for as long as it lived.
    env.setdefault("OMP_WAIT_POLICY", "passive")
    env["CUDA_CACHE_PATH"] = str(folder / "cache" / "cuda")
    env[TOKEN_VARIABLE] = token
    return env


class WorkerProcess:
    """A worker's process. `role`, "reference" or "candidate", decides which program it runs and is named in messages."""

    def __init__(self, role: str, limits: Limits, on_wait: Callable[[float], None] | None = None):
        self.role = role
        self.limits = limits
        self.on_wait = on_wait
        self.token = f"{os.getpid()}-{role}-{secrets.token_hex(8)}"
        self.deadline = 0.0
        self.asked = 0.0
        self._watched = 0.0
        self.folder = Path(tempfile.mkdtemp(prefix=f"mm32-verify-{role}-"))
        ours, theirs = socket.socketpair()
        boot = BOOT.format(PROGRAMS[role])
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-c", boot, json.dumps(search_path()), str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self.folder,
                env=variables(self.folder, self.token),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        finally:
            theirs.close()
        assert self.process.stdout
        assert self.process.stderr
        self.printed = [Drain(self.process.stdout), Drain(self.process.stderr)]  # type: ignore[arg-type]
        self.channel = Channel(ours, self._idle)

    # ------------------------------------------------------------------------------------------------------ asking

    def ask(
        self,
        op: str,
        value: Any = None,
        *,
        timeout: float | None = None,
        max_payload: int | None = None,
        descriptors: Sequence[int] = (),
        **fields: Any,
    ) -> Reply:
        """Send a request and wait for its answer, at most `timeout` seconds; see Channel.ask. Raises Failure."""
        if max_payload is None and self.role == "candidate":
            max_payload = SMALL_PAYLOAD
        self.asked = time.monotonic()
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
        if self.on_wait:
            self.on_wait(now - self.asked)
        if now > self.deadline:
            spent = now - self.asked
            self.end()
            raise Failure("timeout", f"no answer after {spent:.0f} s")
        if self.process.poll() is not None:
            # Its last answer may still be in the socket; the next read finds that or the end of the stream.
            if self._watched == float("inf"):
                raise self._death()
            self._watched = float("inf")
            return
        if now - self._watched < WATCH_INTERVAL:
            return
        self._watched = now
        if sum(drain.total for drain in self.printed) > MAX_PRINTED:
            self.end()
            raise Failure("printed", f"printed more than {MAX_PRINTED >> 20} MiB")
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

    def _members(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self.process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.Error:
            return []

    def _death(self) -> Failure:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        code = self.process.returncode
        self.end()
        if code is None:
            return Failure("channel", "closed its connection to the tool")
        if code < 0:
            name = signal.Signals(-code).name if -code in {s.value for s in signal.Signals} else f"signal {-code}"
            return Failure("crashed", f"the process died of {name}", {"signal": name})
        return Failure("crashed", f"the process ended itself with exit code {code}", {"exit_code": code})

    def output(self) -> str:
        """What the worker printed, standard output first, safe to show."""
        return "\n".join(text.log(printed) for drain in self.printed if (printed := drain.text().strip()))

    # ------------------------------------------------------------------------------------------------------ ending

    def end(self) -> None:
        """Kill the worker and everything that it started. Safe to call more than once."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGSTOP)
        give_up = time.monotonic() + 10
        while True:
            found = self._relatives()
            for process in found:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.2)
            if (not found and self.process.returncode is not None) or time.monotonic() > give_up:
                return
            time.sleep(0.02)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the worker's processes meanwhile, so that nothing it left running disturbs the timing of another."""
        stopped = self._members()
        for process in stopped:
            with contextlib.suppress(psutil.Error):
                process.suspend()
        try:
            yield
        finally:
            for process in stopped:
                with contextlib.suppress(psutil.Error):
                    process.resume()

    def _relatives(self) -> list[psutil.Process]:
        """This worker's living processes: its session, its descendants, and those with its token in their environment."""
        found = []
        descendants = {process.pid for process in self._members()}
        for process in psutil.process_iter():
            try:
                if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                mine = process.pid in descendants or os.getsid(process.pid) == self.process.pid
                if mine or process.environ().get(TOKEN_VARIABLE) == self.token:
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found

    def close(self) -> None:
        """End the worker and remove its folder."""
        with contextlib.suppress(OSError):
            self.channel.sock.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1)  # it ends by itself when its connection closes
        self.end()
        for drain in self.printed:
            drain.join(0.5)
            with contextlib.suppress(OSError):
                if not drain.is_alive():
                    drain.stream.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def close_all(workers: Sequence[WorkerProcess]) -> None:
    """Close every worker, even where closing one of them raises."""
    with contextlib.ExitStack() as stack:
        for worker in workers:
            stack.callback(worker.close)
