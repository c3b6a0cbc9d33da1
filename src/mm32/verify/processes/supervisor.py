"""The process above a worker. It starts the worker; stops, continues and ends all that the worker starts; and says how it ended.

It belongs to the tool's side and runs no code of a script. It becomes the parent of orphans: it is the first process of the
worker's PID namespace, which cannot outlive it, or, where there is none, the subreaper of its descendants. It obeys single words
on a socket of the tool's. When that closes, because the tool has ended in whatever way, it ends everything.

    tool - server (forkserver.py) - supervisor, the first process of the namespaces - worker - whatever that starts

`start` is called in a process of its own, and does not return.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from . import sandbox

PATIENCE = 0.5  # seconds to wait until the processes that were told to stop have stopped
DEAD = "ZXx"  # states of a process that has ended
AT_REST = "Tt" + DEAD  # of a thread that runs nothing: stopped, or dead
CHANNEL = 3  # the worker's descriptor of its connection to the tool


def start(order: dict[str, Any], fds: list[int]) -> None:
    """Start a worker as `order` says (see launch.py). `fds`: the tool's socket, the worker's socket, its output, its errors."""
    control = socket.socket(fileno=fds[0])
    try:
        words, mounts = sandbox.enter(order["mounts"]) if order["namespaces"] else ([], False)
        child = os.fork()
    except (OSError, sandbox.Refused) as error:
        _say(control, failed=str(error))
        os._exit(1)
    if child:
        _say(control, supervisor=child)
        os._exit(0)
    try:
        _Supervisor(order, control, fds[1:], words, mounts).run()
    except BaseException as error:
        _say(control, failed=f"{type(error).__name__}: {error}")
    os._exit(1)


def _say(control: socket.socket, **facts: Any) -> None:
    with contextlib.suppress(OSError):
        control.send(json.dumps(facts).encode())


class _Supervisor:
    def __init__(self, order: dict[str, Any], control: socket.socket, fds: list[int], words: list[str], mounts: bool):
        self.order = order
        self.control = control
        self.fds = fds
        self.words = words
        self.alone = os.getpid() == 1  # the first process of a PID namespace, whose processes all are the worker's
        self.user = sandbox.own_user() if order["user"] else None
        self.mounts = mounts
        self.worker = 0
        self.ended = False

    def run(self) -> None:
        os.setsid()
        sandbox.prctl(sandbox.PR_SET_CHILD_SUBREAPER, 1)
        # With the default action, a namespace's first process ignores it where it comes from inside.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        order = self.order
        if self.mounts:
            sandbox.restrict_view(
                order["folder"], order["temporary"], order["needed"], order["script"], order["hidden"], self.user
            )
            self.words.append(sandbox.VIEW)
        else:
            # Done also where the folder is to be this user's: an attempt at another level may have given it away.
            os.chown(
                order["folder"], *((self.user, self.user) if self.user is not None else (os.geteuid(), os.getegid()))
            )
        ready, told = os.pipe()
        wake, woken = os.pipe()
        os.set_blocking(woken, False)
        self.worker = os.fork()
        if self.worker == 0:
            self._become_worker(told)
        os.close(told)
        for fd in self.fds:
            os.close(fd)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        with os.fdopen(ready, "rb") as pipe:
            answer = json.loads(pipe.read() or b'{"failed": "the worker ended before it began"}')
        if "failed" in answer:
            _say(self.control, **answer)
            self._end()
        _say(self.control, worker=self.worker, isolation=[*self.words, *answer["words"]])
        self._serve(wake)

    def _become_worker(self, told: int) -> None:
        """In the worker's process: give up what it may not have, then run its program. Does not return."""
        code = 97
        try:
            self.control.close()
            told = fcntl.fcntl(told, fcntl.F_DUPFD_CLOEXEC, CHANNEL + 1)
            with os.fdopen(told, "wb") as pipe:
                try:
                    words = self._prepare_worker(told)
                    pipe.write(json.dumps({"words": words}).encode())
                except (OSError, sandbox.Refused) as error:
                    pipe.write(json.dumps({"failed": str(error)}).encode())
                    pipe.flush()
                    os._exit(code)
            sys.argv[:] = ["mm32-verify-worker"]
            program = importlib.import_module(self.order["program"])
            if self.order["threads"] is not None:  # the server may have read the variable already, with its own value
                importlib.import_module("torch").set_num_threads(self.order["threads"])
            program.main([str(CHANNEL)])
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _prepare_worker(self, told: int) -> list[str]:
        order = self.order
        os.setsid()
        channel, output, errors = self.fds
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (output, 1), (errors, 2)):
            os.dup2(source, target)
        if channel != CHANNEL:
            os.dup2(channel, CHANNEL, inheritable=False)
        for fd in sorted(int(name) for name in os.listdir("/proc/self/fd")):
            if fd > CHANNEL and fd != told:
                with contextlib.suppress(OSError):
                    os.close(fd)
        os.environ.clear()
        os.environ.update(order["environment"])
        tempfile.tempdir = None  # an import may have set it, by the server's environment
        os.chdir(order["folder"])
        for name in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(name, signal.SIG_DFL)
        if not order["confined"]:
            sandbox.limit()
            sandbox.prctl(sandbox.PR_SET_DUMPABLE, 0)
            return []
        words = sandbox.confine(self.user, sandbox.device_groups(), order["processes"])
        sandbox.check_access([path for path in (*order["needed"], order["script"]) if path])
        if order["try_cuda"]:
            sandbox.check_cuda()
        return words

    # ------------------------------------------------------------------------------------------------------ serving

    def _serve(self, wake: int) -> None:
        awaited: list[Any] = [self.control, wake]
        while True:
            ready, _, _ = select.select(awaited, [], [])
            if wake in ready:
                os.read(wake, 4096)
                self._reap()
            if self.control not in ready:
                continue
            word = self.control.recv(64)
            if word == b"stop":
                _say(self.control, stopped=self._stop())
            elif word == b"continue":
                self._signal(signal.SIGCONT)
                _say(self.control, continued=True)
            else:  # "end", or the tool has gone
                self._end()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.worker:
                self.ended = True
                _say(self.control, exit=os.waitstatus_to_exitcode(status))

    def _end(self) -> None:
        """Kill everything below, then end. A PID namespace's processes are all gone before its first process counts as ended."""
        known: set[int] = set()
        all_dead = False
        while not self.alone:
            found = self._signal(signal.SIGKILL)
            self._reap()
            was_dead, all_dead = all_dead, not _living(found)
            if all_dead and was_dead and known >= found.keys():  # see _stop
                break
            known |= found.keys()
            time.sleep(0.005)
        if self.alone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while not self.ended:
                    pid, status = os.waitpid(-1, 0)
                    if pid == self.worker:
                        self.ended = True
                        _say(self.control, exit=os.waitstatus_to_exitcode(status))
        os._exit(0)

    def _stop(self) -> bool:
        """Stop every process below, and wait until none of their threads runs; False if some still did after a while."""
        give_up = time.monotonic() + PATIENCE
        known: set[int] = set()
        rested = False
        while True:
            found = self._signal(signal.SIGSTOP)
            if self.alone:
                if not self._sees():
                    time.sleep(0.005)  # all were told to stop, and nothing here says when they have stopped
                    return True
                found = self._below()
            rests = all(map(_at_rest, _living(found)))
            # Without a namespace, a process that forks on and on may be missed while /proc is read. But the dead processes that
            # it leaves behind are not reaped meanwhile. So nothing still runs if all known processes were at rest before /proc
            # was read, and it shows no others.
            if rests and (self.alone or (rested and known >= found.keys())):
                return True
            rested = rests
            known |= found.keys()
            if time.monotonic() > give_up:
                return False
            time.sleep(0.0005)

    def _signal(self, number: int) -> dict[int, str]:
        """Send a signal to all processes below, and return what was found there.

        The processes of a PID namespace all get it at once, so that none can escape by forking, and without a look at them: then
        nothing is returned."""
        if self.alone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, number)
            return {}
        found = self._below()
        for pid in _living(found):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        return found

    def _sees(self) -> bool:
        """Return whether /proc is that of this namespace; the process numbers in another one's mean nothing here."""
        with contextlib.suppress(OSError):
            return os.readlink("/proc/self") == str(os.getpid())
        return False

    def _below(self) -> dict[int, str]:
        """Return the state of each process below this one, whatever session or group they have made themselves.

        Dead ones are included as long as nobody has reaped them. Where processes pass a task on by forking, an ancestor of one
        may end while this looks: its children then have another parent, or one that is a zombie by now. In a PID namespace all
        processes are below, whatever their parents are."""
        parents: dict[int, int] = {}
        states: dict[int, str] = {}
        mine = os.getpid()
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != mine:
                with contextlib.suppress(OSError, ValueError, IndexError):
                    state, parent = _status(f"/proc/{name}/stat")[:2]
                    states[int(name)] = state if state not in DEAD else _of_threads(name, state)
                    parents[int(name)] = int(parent)
        if self.alone and self._sees():
            return states
        return {pid: state for pid, state in states.items() if _descends(pid, mine, parents)}


def _living(found: Mapping[int, str]) -> list[int]:
    return [pid for pid, state in found.items() if state not in DEAD]


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    """Return whether a process is below another, by the parents that /proc showed a moment ago."""
    for _ in range(len(parents)):  # no endless loop, should a process number have been reused meanwhile
        if parents[pid] != ancestor and parents[pid] not in parents:
            with contextlib.suppress(OSError, ValueError, IndexError):
                parents[pid] = int(_status(f"/proc/{pid}/stat")[1])  # its parent has ended since
        pid = parents[pid]
        if pid == ancestor or pid not in parents:
            return pid == ancestor
    return False


def _status(path: str) -> list[str]:
    """Return the fields of a /proc stat file after the name, which may hold anything: state, parent, ..."""
    with open(path, "rb") as file:
        return file.read().rpartition(b")")[2].decode().split()


def _of_threads(pid: str, state: str) -> str:
    """Return the state of a thread that lives on although the first one, whose `state` this is, has ended."""
    with contextlib.suppress(OSError, IndexError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            if (other := _status(f"/proc/{pid}/task/{thread}/stat")[0]) not in DEAD:
                return other
    return state


def _at_rest(pid: int) -> bool:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        return all(_status(f"/proc/{pid}/task/{thread}/stat")[0] in AT_REST for thread in threads)
    except (OSError, IndexError):
        return True  # it has ended meanwhile
