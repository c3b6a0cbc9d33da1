"""A worker in a thread, behind a real channel."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from mm32.verify.exchange import named, wire
from mm32.verify.processes.channel import Channel
from mm32.verify.worker.main import serve

CPU = torch.device("cpu")


class Runner:
    """A worker's script as `serve` sees it. It answers with what a test has put into `answers`, or else with the request."""

    path = Path("candidate.py")
    device = CPU
    names = None
    named_tuple = staticmethod(named.plain_class)

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.answers: list[Any] = []

    def operations(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        return {"echo": self.echo, "build": self.echo}

    def echo(self, request: dict[str, Any]) -> dict[str, Any]:
        self.seen.append(request["value"])
        return {"value": self.answers.pop(0) if self.answers else request["value"]}


@contextlib.contextmanager
def served(runner: Runner, trusted: bool = False) -> Iterator[Channel]:
    ours, theirs = socket.socketpair()
    worker = threading.Thread(target=serve, args=(wire.Connection(theirs, descriptors=True), runner))
    worker.start()
    try:
        yield Channel(ours, lambda: None, trusted, runner.device)
    finally:
        ours.close()
        worker.join()
        theirs.close()
