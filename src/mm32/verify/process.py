"""The parent's end of a worker: start it, ask it things, watch it, and end it with its whole process tree.

The code that runs in a worker may hang, crash, fork, print without end or fill the memory; none of that may reach the
tool. What is watched: the deadline of each request, the memory and number of the worker's processes, and how much it
prints. RLIMIT_AS is not used, since CUDA reserves far more address space than memory.
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
from torch import Tensor

from . import protocol

BOOT = "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1)); from mm32.verify.worker import main; main(sys.argv[1:])"
# Environment variables that turn fp32 into TF32 behind everybody's back.
TF32_SWITCHES = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
TOKEN_VARIABLE = "MM32_VERIFY_WORKER"
MAX_PRINTED = 64 << 20
KEPT_PRINTED = 32 << 10
SMALL_PAYLOAD = 64 << 20  # of an answer that is to carry no tensors to speak of
WATCH_INTERVAL = 0.25
MAX_PROCESSES = 64 + 8 * (os.cpu_count() or 1)


@dataclass
class Limits:
    """What a worker may use: seconds for one request, GiB of resident memory over all of its processes."""

    timeout: float = 300.0
    memory_gib: float = 16.0


class Failure(Exception):
    """A request that brought no answer. `kind` is one of raised, crashed, timeout, memory, processes, printed, channel."""

    def __init__(self, kind: str, message: str, details: dict[str, Any] | None = None):
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.details = details or {}
        self.role = ""


@dataclass
class Reply:
    """An answer: the worker's header (without trust: check before use), its value, and the wall time the parent saw."""

    header: dict[str, Any]
    value: Any
    wall: float = 0.0


class Drain(threading.Thread):
    """Reads what a worker prints, so that it never blocks, and keeps the first and the last 32 KiB of it."""

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
    """The parent's sys.path without its relative entries: a worker's own folder must not shadow a module."""
    return [str(Path(entry)) for entry in sys.path if entry and os.path.isabs(entry)]


def environment(folder: Path, token: str) -> dict[str, str]:
    """The worker's environment: the parent's, with every cache and temporary folder inside `folder`."""
    env = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTHON") and name not in TF32_SWITCHES
    }
    env["PATH"] = os.pathsep.join([env.get("PATH", os.defpath), sysconfig.get_path("scripts")])
    for name in ("HOME", "TMPDIR", "TEMP", "TMP"):
        env[name] = str(folder)
    for name in ("XDG_CACHE_HOME", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        env[name] = str(folder / "cache" / name.lower())
    # On a busy CPU, OpenMP threads that spin at a barrier while their partner waits for their core make the same code
    # hundreds of times slower in one process than in another, for as long as the process lives (20 µs against 8 ms seen).
    env.setdefault("OMP_WAIT_POLICY", "passive")
    env["CUDA_CACHE_PATH"] = str(folder / "cache" / "cuda")
    env[TOKEN_VARIABLE] = token
    return env


class Worker:
    """One isolated process. `role` is "reference" or "candidate" and appears in messages only."""

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
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-c", BOOT, json.dumps(search_path()), str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self.folder,
                env=environment(self.folder, self.token),
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
        self.channel = protocol.Channel(ours, self._idle)

    # ------------------------------------------------------------------------------------------------------ asking

    def ask(
        self,
        op: str,
        value: Any = None,
        *,
        timeout: float | None = None,
        max_payload: int | None = None,
        two: bool = False,
        **fields: Any,
    ) -> Reply:
        """Send a request and wait for its answer; with `two`, for a second frame that carries the value.

        `wall` of the answer is the time from the end of sending to the first frame, by this process's clock.
        Raises Failure.
        """
        try:
            return self._ask(op, value, timeout, max_payload, two, fields)
        except Failure as failure:
            failure.role = self.role
            raise

    def _ask(
        self, op: str, value: Any, timeout: float | None, max_payload: int | None, two: bool, fields: dict[str, Any]
    ) -> Reply:
        if max_payload is None and self.role == "candidate":
            max_payload = SMALL_PAYLOAD
        tensors: list[Tensor] = []
        nonce = secrets.token_hex(8)
        request = {"op": op, "nonce": nonce, "value": protocol.pack(value, tensors), **fields}
        self.asked = time.monotonic()
        self.deadline = self.asked + min(self.limits.timeout, timeout if timeout is not None else self.limits.timeout)
        try:
            self.channel.send(request, tensors)
            start = time.perf_counter()
            header, arrived = self._receive(nonce, max_payload)
            wall = time.perf_counter() - start
            if two:
                second, arrived = self._receive(nonce, max_payload)
                header["value"] = second.get("value")
            return Reply(header, protocol.unpack(header.get("value"), arrived), wall)
        except protocol.ProtocolError as error:
            self.end()
            raise Failure("channel", f"wrote something that is no answer to the result channel ({error})") from None
        except protocol.Closed:
            raise self._death() from None

    def _receive(self, nonce: str, max_payload: int | None) -> tuple[dict[str, Any], list[Tensor]]:
        header, tensors = self.channel.receive(max_payload)
        if header.get("nonce") != nonce:
            raise protocol.ProtocolError("an answer to another question")
        error = header.get("error")
        if error is not None:
            if not (
                isinstance(error, dict) and all(isinstance(item, (str, int, type(None))) for item in error.values())
            ):
                raise protocol.ProtocolError("malformed error")
            raise Failure("raised", str(error.get("message", "")), error)
        return header, tensors

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
            # Its last words may still lie in the socket; the next read finds them or the end of the stream.
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
            return Failure("channel", "closed the result channel")
        if code < 0:
            name = signal.Signals(-code).name if -code in {s.value for s in signal.Signals} else f"signal {-code}"
            return Failure("crashed", f"the process died of {name}", {"signal": name})
        return Failure("crashed", f"the process ended itself with exit code {code}", {"exit_code": code})

    def output(self) -> str:
        """What the worker printed, standard output first."""
        return "\n".join(text for drain in self.printed if (text := drain.text().strip()))

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
        """Stop the worker's processes for a while, so that nothing it left running disturbs another's timing."""
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
        """Living processes of this worker: its session, its descendants, and whoever carries its token."""
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
            self.process.wait(1)  # it leaves by itself when its channel closes
        self.end()
        for drain in self.printed:
            drain.join(0.5)
            with contextlib.suppress(OSError):
                if not drain.is_alive():
                    drain.stream.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def all_close(workers: Sequence[Worker]) -> None:
    """Close every worker, whatever the closing of one of them does."""
    with contextlib.ExitStack() as stack:
        for worker in workers:
            stack.callback(worker.close)
