"""The tool's end of the connection to a worker: requests, and answers that are checked before anything uses them.

The other end runs the code under test. An answer counts only if it carries the nonce of its request; its value is
rebuilt from plain types and tensors (wire.py); every text in its header, an exception's message for instance, is made
safe to show (text.py) here, before any other part of the tool sees it. Texts inside the value itself (an output that is a
str) stay as they are, to be compared; code that shows one uses `text.one_line`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import text
from ..exchange import handover, memory, wire

# What a worker says of an exception: each field with the function that makes it safe.
ERROR_FIELDS: dict[str, Callable[[object], str]] = {
    **dict.fromkeys(("type", "message", "hint", "script", "source"), text.one_line),
    **dict.fromkeys(("context", "traceback"), text.log),
}


# Requests whose answers hold no tensors, and that may be timed: no file is made for them.
SMALL = {"wake", "window", "release", "slots", "adopt", "set_inputs", "load", "build", "keep_state"}


class Failure(Exception):
    """A request without an answer. `kind`: raised, crashed, killed, timeout, memory, processes, printed or channel.

    `details`: for "raised" the fields of `checked_error`; for "memory" "on_card", where a card's memory is meant; for "crashed"
    and "killed" the "signal" or "exit_code". `role`: whose process it was, reference or candidate for instance.
    """

    def __init__(self, kind: str, message: str, details: dict[str, Any] | None = None, role: str = ""):
        self.message = text.one_line(message)
        super().__init__(self.message)
        self.kind = kind
        self.details = details or {}
        self.role = role


@dataclass
class Reply:
    """An answer: the worker's header (its claims), its value, and the seconds from the request to the answer by our clock."""

    header: dict[str, Any]
    value: Any
    wall: float = 0.0


class Channel:
    """Sends requests to a worker. `idle` is called while an answer is awaited, and raises to end the wait.

    Large answers of a `trusted` worker are not copied. Large tensors on `device`, the worker's and the tool's, stay there
    (handover.py)."""

    def __init__(
        self,
        sock: socket.socket,
        idle: Callable[[], None],
        trusted: bool = False,
        device: torch.device | None = None,
    ):
        self.sock = sock
        self.trusted = trusted
        self.device = device
        self._connection = wire.Connection(sock, idle)

    def ask(
        self, op: str, value: Any, fields: dict[str, Any], max_payload: int | None, descriptors: Sequence[int] = ()
    ) -> Reply:
        """Send a request, with file descriptors beside it, and receive its answer.

        The reply's `wall` is from the end of sending to the end of the answer. Raises wire.ProtocolError,
        wire.Closed, what `idle` raises, and Failure for an exception that the worker reports or memory that is missing.
        """
        tensors: list[Tensor] = []
        nonce = secrets.token_hex(8)
        request = {"op": op, "nonce": nonce, "value": wire.pack(value, tensors), **fields}
        if self.device is not None and op not in SMALL:
            handover.make_room(self.device)  # judging has left memory in use that the worker may need
        with contextlib.ExitStack() as files:
            sent = list(descriptors)
            numbers = handover.chosen(tensors, str(self.device), handover.LARGE) if self.device is not None else []
            if numbers:
                large, tensors, request["value_on_card"] = handover.split(tensors, numbers)
                passage = self._passage(handover.Load(request["value_on_card"], len(tensors)), large)
                files.callback(passage.close)
                sent.append(passage.descriptor)
                del large
            if wire.size_of(tensors) >= wire.LARGE:
                file = memory.new_file()
                files.callback(os.close, file)
                request["value_in_file"] = wire.to_file(file, tensors)
                memory.freeze(file)
                sent.append(file)
                tensors = []
            answer = -1
            if op not in SMALL:
                answer = memory.new_file(None if self.trusted else max_payload)
                files.callback(os.close, answer)
                request["answer_to_file"] = True
                sent.append(answer)
                if self.device is not None:
                    request["answer_on_card"] = [str(self.device), handover.LARGE]
            self._connection.send(request, tensors, sent)
            start = time.perf_counter()
            header, arrived = self._receive(nonce, max_payload)
            if "in_file" in header:
                arrived = self._from_file(answer, header.pop("in_file"), max_payload)
            if "on_card" in header:
                if "answer_on_card" not in request:
                    raise wire.ProtocolError("an answer on the card that was not asked for")
                arrived = self._from_card(header.pop("on_card"), arrived, max_payload)
            wall = time.perf_counter() - start
        node = header.pop("value", None)
        with reading():
            return Reply(safe(header), wire.unpack(node, arrived), wall)

    def _from_file(self, answer: int, metas: Any, max_payload: int | None) -> list[Tensor]:
        if answer < 0:
            raise wire.ProtocolError("an answer in a file that was not asked for")
        with reading():
            return wire.from_file(answer, metas, self.trusted, max_payload)

    def _from_card(self, described: Any, others: list[Tensor], max_payload: int | None) -> list[Tensor]:
        """Return all tensors of an answer: those `described` are still the worker's, and it is told to hand them over."""
        limit = None if max_payload is None else max_payload - wire.size_of(others)
        with reading():
            load = handover.Load(described, len(others), handover.LARGE, limit)
        passage = self._passage(load)
        try:
            nonce = secrets.token_hex(8)
            request = {"op": handover.HAND_OVER, "nonce": nonce, "size": load.size}
            self._connection.send(request, (), [passage.descriptor])
            self._receive(nonce, 0)
            with _memory_for(load):
                return load.merged(passage.own(), others)
        finally:
            passage.close()

    def _passage(self, load: handover.Load, tensors: Sequence[Tensor] = ()) -> handover.Passage:
        assert self.device is not None
        with _memory_for(load):
            passage = handover.Passage(load, self.device)
            try:
                passage.fill(tensors)
            except BaseException:
                passage.close()
                raise
        return passage

    def _receive(self, nonce: str, max_payload: int | None) -> tuple[dict[str, Any], list[Tensor]]:
        header, tensors = self._connection.receive(max_payload)
        if header.get("nonce") != nonce:
            raise wire.ProtocolError("an answer to another question")
        if header.get("error") is not None:
            error = checked_error(header["error"])
            raise Failure("raised", error["message"], error)
        return header, tensors


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Raise ProtocolError for what no check of an answer has foreseen: the worker is at fault, and it must not end the tool."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise wire.ProtocolError(f"it cannot be read: {type(error).__name__}") from None


@contextlib.contextmanager
def _memory_for(load: handover.Load) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:
        said = f"no memory of the card is left to hand {load.size / 2**30:.1f} GiB over ({error})"
        raise Failure("memory", said, {"on_card": True}) from None


def checked_error(error: Any) -> dict[str, Any]:
    """Return a worker's account of an exception: texts of ERROR_FIELDS, "built" (1: while building) and "line" (or None)."""
    if not isinstance(error, dict):
        raise wire.ProtocolError("malformed error")
    found: dict[str, Any] = {}
    for name, clean in ERROR_FIELDS.items():
        value = error.get(name)
        if not isinstance(value, (str, type(None))):
            raise wire.ProtocolError("malformed error")
        found[name] = clean(value or "")
    line = error.get("line")
    found["line"] = line if type(line) is int and 0 < line < 1 << 31 else None
    found["built"] = 1 if error.get("built") == 1 else 0
    return found


def safe(value: Any, depth: int = 0) -> Any:
    """Return a header's values with every text in them made one line."""
    if depth > 8:
        raise wire.ProtocolError("a header that is nested too deep")
    if isinstance(value, dict):
        return {text.one_line(key): safe(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [safe(item, depth + 1) for item in value]
    return text.one_line(value) if isinstance(value, str) else value
