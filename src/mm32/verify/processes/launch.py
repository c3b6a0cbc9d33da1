"""Start workers quickly: the tool's side of the fork server (forkserver.py) and of the supervisors (supervisor.py).

The server is started once and kept for later verifications of this process, as long as the environment variables that
libraries read when they are loaded stay the same. Where it does not come up, each worker gets a server of its own that imports
nothing beforehand: slower, and otherwise the same.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .sandbox import PID_NAMESPACE

# What servers import before they fork, in the order in which it is tried. A server that finds CUDA in use after its imports
# ends, and the next one imports less.
PRELOADED = (("mm32.verify.worker.main",), ())
BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from mm32.verify.processes.forkserver import main; main(sys.argv[1:])"
)
# Environment variables that make torch compute products of fp32 matrices in TF32.
TF32_SWITCHES = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
# Sockets of the user's other programs, which would run things for whoever asks.
OTHER_PROGRAMS = ("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY")
# Prefixes of the variables that libraries read when they are loaded.
READ_AT_LOAD = ("OMP", "GOMP", "KMP", "MKL", "OPENBLAS", "TORCH", "PYTORCH", "ATEN", "LD_", "MALLOC", "CUDA", "NVIDIA")
START = 120.0  # seconds that a worker may take to come up, torch's import included
UNFIT = 3  # exit code of a server that cannot fork
OBEY = 5.0  # seconds that a supervisor may take to obey
# From most to least confined: whether namespaces, a separate view of the file system, and another user are tried. At every level
# the worker goes without what the system refuses. A level is given up where the worker could not work there.
LEVELS: tuple[tuple[bool, bool, bool], ...] = (
    (True, True, True),
    (True, False, True),
    (True, True, False),
    (True, False, False),
    (False, False, False),
)


class NoStart(RuntimeError):
    """No process for a script could be started, and no script is the reason."""


def search_path() -> list[str]:
    """Return this process's sys.path without relative entries: files in a worker's folder must not shadow a module."""
    return [str(Path(entry)) for entry in sys.path if entry and os.path.isabs(entry)]


def environment() -> dict[str, str]:
    """Return the environment variables of all workers.

    They are this process's own without Python's, those that make products TF32, and the sockets of other programs."""
    dropped = (*TF32_SWITCHES, *OTHER_PROGRAMS)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON") and name not in dropped}
    # On a busy CPU, OpenMP threads that spin at a barrier keep the thread that they wait for from its core. The same code then
    # took 8 ms instead of 20 µs in one of two processes, for as long as that process lived.
    env.setdefault("OMP_WAIT_POLICY", "passive")
    return env


def needed() -> list[str]:
    """Return the files and folders that a worker reads whatever its script is: Python's and the libraries'."""
    paths = [sys.executable, os.path.realpath(sys.executable), sys.prefix, sys.base_prefix, *search_path()]
    paths += os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    paths += [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", "")]  # load_inline's compiler
    return [path for path in dict.fromkeys(paths) if path and os.path.exists(path)]


class Server:
    """A fork server's process, which may still be importing."""

    def __init__(self, modules: Sequence[str]):
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-c",
                    BOOT,
                    json.dumps(search_path()),
                    str(theirs.fileno()),
                    json.dumps(modules),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment(),
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # an interrupt from the keyboard is for the tool
            )
        except BaseException:
            self.sock.close()
            raise
        finally:
            theirs.close()

    def send(self, order: dict[str, Any], fds: Sequence[int]) -> None:
        socket.send_fds(self.sock, [json.dumps(order).encode()], list(fds))

    def close(self) -> None:
        """End the server; workers that it has started go on."""
        self.sock.close()
        try:
            self.process.wait(0.2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


_lock = threading.Lock()
_shared: tuple[Any, Server] | None = None
_imports = 0  # the index in PRELOADED of what a server can import here
# By LEVELS and by whether workers use CUDA: the index of the first level at which they work.
_works: dict[tuple[tuple[tuple[bool, bool, bool], ...], bool], int] = {}


def shared() -> Server:
    """Return this process's server. It is started if need be, and may still be coming up."""
    global _shared
    read = sorted((name, value) for name, value in environment().items() if name.startswith(READ_AT_LOAD))
    key = (os.getpid(), search_path(), read, _imports)
    with _lock:
        if _shared is not None and _shared[0] == key and _shared[1].process.poll() is None:
            return _shared[1]
        if _shared is not None and _shared[0][0] == key[0]:
            _shared[1].close()
        _shared = (key, Server(PRELOADED[_imports]))
        return _shared[1]


@atexit.register
def _close() -> None:
    if _shared is not None and _shared[0][0] == os.getpid():
        _shared[1].close()


@dataclass
class Launched:
    """A worker with its supervisor. `worker` is its process number, 0 where it is in a PID namespace of its own."""

    control: socket.socket
    supervisor: int
    pidfd: int
    worker: int
    isolation: list[str]
    exit_code: int | None = None  # as subprocess has it: negative for a signal
    lost: bool = False  # the supervisor has ended
    ended: bool = False  # `end` was called

    def poll(self) -> bool:
        """Return whether the worker has ended; its `exit_code` is then known, unless the supervisor is `lost`."""
        self._hear(0.0)
        return self.exit_code is not None or self.lost

    def command(self, word: bytes, answer: str) -> bool:
        """Send the supervisor a word. Return what it says under `answer`, or False where it does not answer in time."""
        try:
            self.control.send(word)
        except OSError:
            self.lost = True
            return False
        end = time.monotonic() + OBEY
        while time.monotonic() < end and not self.lost:
            facts = self._hear(end - time.monotonic())
            if answer in facts:
                return bool(facts[answer])
        return False

    def end(self) -> None:
        """Make the supervisor kill everything below it, and end."""
        if self.ended:
            return
        self.ended = True
        with contextlib.suppress(OSError):
            self.control.send(b"end")
        if not self._gone(OBEY):
            with contextlib.suppress(OSError):
                if self.pidfd >= 0:
                    signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
                else:
                    os.kill(self.supervisor, signal.SIGKILL)
            self._gone(OBEY)
        self._hear(0.0)
        if self.pidfd >= 0:
            os.close(self.pidfd)
        self.control.close()

    def _gone(self, seconds: float) -> bool:
        """Return whether the supervisor ends within so many seconds. Its namespace's processes have then ended too."""
        if self.pidfd >= 0:
            poll = select.poll()
            poll.register(self.pidfd, select.POLLIN)
            return bool(poll.poll(seconds * 1000))
        end = time.monotonic() + seconds
        while (here := _runs(self.supervisor)) and time.monotonic() < end:
            time.sleep(0.005)
        return not here

    def _hear(self, seconds: float) -> dict[str, Any]:
        """Return what the supervisor says within so many seconds, or {}."""
        facts = hear(self.control, seconds) if not self.lost and self.control.fileno() >= 0 else None
        if facts is None:
            self.lost = True
            return {}
        if "exit" in facts:
            self.exit_code = int(facts["exit"])
        return facts


def _runs(process: int) -> bool:
    """Return whether there is a process of this number that has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZXx"
    except OSError:
        return False


def hear(control: socket.socket, seconds: float) -> dict[str, Any] | None:
    """Return the next message of a supervisor; {} if none comes within so many seconds, None if it has ended."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    if not poll.poll(max(0.0, seconds) * 1000):
        return {}
    try:
        message = control.recv(1 << 16)
    except OSError:
        return None
    return dict(json.loads(message)) if message else None


def launch(order: dict[str, Any], fds: Sequence[int], waiting: Callable[[], None]) -> Launched:
    """Start a worker: as confined as it can be if order["confined"], else only under a supervisor.

    `order`: "program" (a module with main([descriptor])), "confined", "environment", "folder", "temporary" (folders for
    temporary files), "needed", "script", "hidden" (a file that it must not see), "processes" (the most that it may have) and
    "threads" (torch's number of threads; None: as the server's environment says). `fds`: its connection, output, errors.
    `waiting` is called about ten times a second. Raises NoStart.
    """
    said, failed = "no server came up", 0
    while _imports < len(PRELOADED):
        number = _imports
        server = shared() if PRELOADED[number] else Server(())
        try:
            found = _confined(server, order, fds, waiting)
        finally:
            if not PRELOADED[number]:
                server.close()
        if isinstance(found, Launched):
            return found
        if found:  # the server works, but this worker does not
            said = found
            break
        failed += 1
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.process.wait(1)  # otherwise `shared` may find it still alive
        if failed > 1 or server.process.poll() == UNFIT:  # a single failure may be chance, or somebody's doing
            failed = 0
            if number + 1 == len(PRELOADED):
                break
            _import_less(number)
    raise NoStart(f"a process for the scripts could not be started: {said}")


def _confined(server: Server, order: dict[str, Any], fds: Sequence[int], waiting: Callable[[], None]) -> Launched | str:
    """Return a worker at the first level that works; or why there is none, "" if the server has ended."""
    found: Launched | str = ""
    last = len(LEVELS) - 1
    key = (LEVELS, _has_cuda() and order["environment"].get("CUDA_VISIBLE_DEVICES") not in ("", "-1"))
    known = _works.get(key)
    for number in range(known or 0, last + 1) if order["confined"] else (last,):
        namespaces, mounts, user = LEVELS[number]
        whole = {**order, "namespaces": namespaces, "mounts": mounts, "user": user}
        found = _attempt(server, {**whole, "try_cuda": known is None and number < last and key[1]}, fds, waiting)
        if isinstance(found, Launched) and order["confined"]:
            _works[key] = number
        if not isinstance(found, str) or not found:
            break
    return found


def _has_cuda() -> bool:
    """Return whether a worker may use a GPU here. Ask neither torch.cuda nor the driver: that could start CUDA here."""
    import torch

    return torch.version.cuda is not None and os.path.exists("/dev/nvidiactl")


def _import_less(number: int) -> None:
    """Let later servers import less: one that imports PRELOADED[number] does not come up here."""
    global _imports
    with _lock:
        _imports = max(_imports, number + 1)


def _attempt(server: Server, order: dict[str, Any], fds: Sequence[int], waiting: Callable[[], None]) -> Launched | str:
    """Return a worker, or why there is none; "" if the server has ended."""
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pidfd = -1
    try:
        try:
            server.send(order, [theirs.fileno(), *fds])
        except OSError:
            return ""
        finally:
            theirs.close()
        known: dict[str, Any] = {}  # what two processes say, in either order
        end = time.monotonic() + START
        while time.monotonic() < end:
            facts = hear(control, 0.1)
            if facts is None:
                return ""
            if not facts:
                waiting()
            known |= facts
            if "failed" in known:
                return str(known["failed"]) or "no reason given"
            if "supervisor" in facts:
                with contextlib.suppress(OSError):  # not every system has it
                    pidfd = os.pidfd_open(known["supervisor"])
            if "worker" in known and "supervisor" in known:
                worker = 0 if PID_NAMESPACE in known["isolation"] else int(known["worker"])
                launched = Launched(control, known["supervisor"], pidfd, worker, known["isolation"])
                control, pidfd = None, -1  # type: ignore[assignment]
                return launched
        return "it did not come up in time"
    finally:
        if control is not None:
            control.close()
        if pidfd >= 0:
            os.close(pidfd)
