"""A bench of timed windows whose worker is in this process."""

from __future__ import annotations

import os
from typing import Any

import torch

from mm32.verify.inputs.pools import Pools
from mm32.verify.processes.channel import Reply
from mm32.verify.timing.window import Bench
from mm32.verify.worker.slots import Slots

CPU = torch.device("cpu")


class Beside:
    """A worker in this process, with a model that the test chooses."""

    def __init__(self, model: Any, role: str = "candidate"):
        self.model, self.role = model, role
        self.slots: Slots | None = None
        self.messages: list[str] = []

    def ask(self, op: str, value: Any = None, **fields: Any) -> Reply:
        self.messages.append(op)
        if op == "slots":
            self.slots = Slots({**fields, "value": value}, CPU, lambda seed: torch.manual_seed(seed) and None)
            return Reply({}, None)
        assert self.slots is not None
        if op == "window":
            fields["descriptors"] = [os.dup(descriptor) for descriptor in fields["descriptors"]]
            return Reply(self.slots.window(fields, lambda inputs: self.model(*inputs)), None)
        self.slots.release()
        return Reply({}, None)

    def watch(self) -> None:
        self.messages.append("a look")


def bench(model: Any, count: int = 6, role: str = "candidate") -> Bench:
    torch.manual_seed(1)
    of = Pools([[torch.rand(8, 8), torch.rand(8)] for _ in range(3)], CPU)
    return Bench(Beside(model, role), of, [("output", torch.empty(8, 8))], count, CPU)
