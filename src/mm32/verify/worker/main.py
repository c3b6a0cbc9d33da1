"""The program of a worker's process: take requests from the tool, have a script's runner do them, answer.

process.py starts it as `python -I -c ... DESCRIPTOR PARENT`. Whatever the script raises is answered as an error; if it
kills the process, the tool sees that.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import wire
from . import build_errors
from .runner import BuildError, ScriptRunner
from .script import ScriptError, where_in

# Bound before any script is loaded, which may replace them.
_exit = os._exit
_getpid = os.getpid
SHORT = 2000


def describe_error(error: BaseException, path: Path) -> dict[str, Any]:
    """What the tool tells a person about an exception: plain texts, and the line of the script at `path` that raised it."""
    where = where_in(path, error)
    explained = build_errors.explain(error)
    return {
        "type": type(error).__name__,
        "message": (explained.message if explained else build_errors.first_line(error))[:SHORT],
        "hint": (explained.hint if explained else "")[:SHORT],
        "context": (explained.context if explained else "")[:SHORT],
        "built": int(explained is not None or isinstance(error, (BuildError, ScriptError, SyntaxError))),
        "script": path.name,
        "line": where[0] if where else None,
        "source": where[1].strip()[:200] if where else None,
        "traceback": "".join(traceback.format_exception(error))[-4000:],
    }


def serve(connection: wire.Connection, runner: ScriptRunner) -> None:
    """Answer requests until the tool closes the connection."""
    operations = runner.operations()
    me = _getpid()
    while True:
        try:
            request, tensors = connection.receive()
        except wire.Closed:
            return
        nonce = request.get("nonce")
        outgoing: list[Tensor] = []
        try:
            request["value"] = wire.unpack(request.get("value"), tensors)
            del tensors
            with torch.no_grad():
                answer = operations[request["op"]](request)
            header = {**answer, "nonce": nonce, "value": wire.pack(answer.get("value"), outgoing)}
        except BaseException as error:
            # SystemExit and KeyboardInterrupt as well: a script that calls sys.exit() must not end the process.
            outgoing = []
            header = {"nonce": nonce, "value": {"value": None}, "error": describe_error(error, runner.path)}
        if _getpid() != me:
            _exit(0)  # a child that the script forked has returned here: only the parent answers
        del request
        answer = {}  # frees the output before the next request
        connection.send(header, outgoing)


def confine(parent: int) -> None:
    """End with the parent process, adopt orphaned descendants, write no core file and no file above 8 GiB."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    if os.getppid() != parent:
        _exit(1)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 30, 8 << 30))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)


def main(arguments: list[str], runner: Callable[[], ScriptRunner] = ScriptRunner) -> None:
    """Serve with a `runner` on the socket of descriptor arguments[0]; arguments[1] is the parent's process number."""
    descriptor, parent = int(arguments[0]), int(arguments[1])
    sys.argv[:] = ["mm32-verify-worker"]
    confine(parent)
    sock = socket.socket(fileno=descriptor)
    sock.set_inheritable(False)
    try:
        serve(wire.Connection(sock, descriptors=True), runner())
    except wire.Closed:
        pass
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        _exit(0)
