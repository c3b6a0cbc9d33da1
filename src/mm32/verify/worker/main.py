"""The program of a worker's process: take requests from the tool, have a script's runner do them, answer.

A process forked from the tool's fork server calls `main`, confined already. Whatever the script raises is answered as an
error; if it kills the process, the tool sees that.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..exchange import handover, wire
from . import build_errors, unsupported
from .runner import BuildError, ScriptRunner
from .script import ScriptError, where_in

# Bound before any script is loaded, since a script may replace them.
_close = os.close
_exit = os._exit
_getpid = os.getpid
SHORT = 2000
MAX_LEAVES = 10_000


def describe_error(error: BaseException, runner: ScriptRunner, op: str = "") -> dict[str, Any]:
    """Return what the tool tells a person of an exception in answering `op`: plain texts, and the script's line that
    raised it."""
    path = runner.path
    where = where_in(path, error)
    explained = build_errors.explain(error)
    message = explained.message if explained else build_errors.first_line(error)
    if isinstance(error, wire.Unsupported):
        message = unsupported.explain(error, op, runner.names)
    return {
        "type": type(error).__name__,
        "message": message[:SHORT],
        "hint": (explained.hint if explained else build_errors.other_hint(error))[:SHORT],
        "context": (explained.context if explained else "")[:SHORT],
        "built": int(explained is not None or isinstance(error, (BuildError, ScriptError, SyntaxError))),
        "script": path.name,
        "line": where[0] if where else None,
        "source": where[1].strip()[:200] if where else None,
        "traceback": "".join(traceback.format_exception(error))[-4000:],
    }


def _packed(value: Any, outgoing: list[Tensor]) -> dict[str, Any]:
    """Return wire.pack of `value`. Raises wire.Unsupported for more tensors and numbers than the tool takes."""
    if (count := len(wire.leaves(value))) > MAX_LEAVES:
        raise wire.Unsupported(f"{count} tensors and numbers in one output, where at most {MAX_LEAVES} can be judged")
    return wire.pack(value, outgoing)


def _to_file(file: int, header: dict[str, Any], tensors: list[Tensor]) -> list[Tensor]:
    """Write large tensors to the tool's file, and say so in `header`. Return the tensors that are left to be sent."""
    if wire.LARGE <= wire.size_of(tensors) <= wire.LARGEST_FILE:
        with contextlib.suppress(OSError):  # there are more bytes than the tool takes, as it will say
            header["in_file"] = wire.to_file(file, tensors)
            return []
    return tensors


def _given(request: dict[str, Any], tensors: list[Tensor], device: torch.device) -> list[Tensor]:
    """Return all tensors of a request, of which large ones come in a file or on the card."""
    if "value_in_file" in request:
        file = request["descriptors"].pop()
        tensors = wire.from_file(file, request.pop("value_in_file"), trusted=True)
        _close(file)
    if "value_on_card" in request:
        load, large = handover.take(request["value_on_card"], len(tensors), request["descriptors"].pop(), device)
        tensors = load.merged(large, tensors)
    return tensors


def serve(connection: wire.Connection, runner: ScriptRunner) -> None:
    """Answer requests until the tool closes the connection. The request "begin" replaces this runner by a new one."""
    operations = runner.operations()
    me = _getpid()
    nothing: dict[str, Any] = {}
    kept: list[Tensor] = []  # the last answer's tensors, until the tool has made memory for them
    while True:
        try:
            request, tensors = connection.receive()
        except wire.Closed:
            return
        nonce = request.get("nonce")
        outgoing: list[Tensor] = []
        file = request["descriptors"].pop() if request.get("answer_to_file") else -1
        by_card = "value_on_card" in request
        try:
            if request["op"] == handover.HAND_OVER:
                handover.put(kept, request["size"], request["descriptors"].pop(), runner.device)
                by_card, answer = True, nothing
            elif request["op"] == "begin":
                runner.leave()
                runner = type(runner)()
                operations, answer = runner.operations(), nothing
                gc.collect()  # a runner and its parts are a cycle
                handover.free(runner.device)
            else:
                request["value"] = wire.unpack(
                    request.get("value"), _given(request, tensors, runner.device), runner.named_tuple
                )
                del tensors
                with torch.no_grad():
                    answer = operations[request["op"]](request)
            header = {**answer, "nonce": nonce, "value": _packed(answer.get("value"), outgoing)}
        except BaseException as error:
            # SystemExit and KeyboardInterrupt as well: a script that calls sys.exit() must not end the process.
            outgoing = []
            header = {"nonce": nonce, "value": {"value": None}, "error": describe_error(error, runner, request["op"])}
        if _getpid() != me:
            _exit(0)  # a child that the script forked has returned here: only the parent answers
        card = request.get("answer_on_card")
        del request
        answer, kept = {}, []  # frees the output before the next request
        if card is not None and (numbers := handover.chosen(outgoing, *card)):
            kept, outgoing, header["on_card"] = handover.split(outgoing, numbers)
        if by_card or kept:
            with contextlib.suppress(RuntimeError):  # raised if the context is lost, which the next request will report
                handover.make_room(runner.device)
        if file >= 0:
            outgoing = _to_file(file, header, outgoing)
            _close(file)
        connection.send(header, outgoing)
        outgoing = []  # otherwise the card's memory is held until the next request


def main(arguments: list[str], runner: Callable[[], ScriptRunner] = ScriptRunner) -> None:
    """Serve with a `runner` on the socket of descriptor arguments[0]."""
    sock = socket.socket(fileno=int(arguments[0]))
    sock.set_inheritable(False)
    code = 0
    try:
        serve(wire.Connection(sock, descriptors=True), runner())
    except wire.Closed:
        pass
    except BaseException:  # for example, a GPU that cannot be used
        traceback.print_exc()
        code = 97
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        _exit(code)
