"""The reference's float64 truth, computed once for all candidates that are given the same data.

What is kept is what a trusted process has answered: the float64 results with how far rounding may lead, gauges, and outputs
computed wrongly on purpose. They are looked up by the contents of everything that determines them (the reference's script, its
parameters, the inputs, its fp32 output, the seed of the call), so a reference that answers differently is asked anew. They stay
in the tool's own process, which no candidate can read.

Not shared here are the reference's processes (a candidate that disturbed one would disturb the judgement of the next; spares.py
keeps those that no candidate can reach); times, which mean something only beside those of the same minutes (timing/stage.py keeps
the reference's own for half a minute); and the data of timed windows, which are secret.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..exchange.memory import bits_of, buffer_of
from ..exchange.wire import bytes_of, leaves
from ..inputs.catalogue import MILDER, VARIATIONS
from ..inputs.isolating import ISOLATING
from ..processes.channel import Reply
from ..processes.process import WorkerProcess
from .jobs import digest

# Requests whose answers are kept; they change nothing in the reference's process.
KEPT = ("truth", "gauge", "spoiled", "coarse")
# Other requests that change nothing on which a kept answer depends.
UNCHANGING = ("load", "machine", "make_more", "slots", "wake", "window", "release", "free")
# Variations of the model's own tensors.
STATES = {v.name for v in (*VARIATIONS, *MILDER.values(), *ISOLATING) if v.state}
MOST = 1 << 30  # the most bytes of answers that are kept
# Contents of values of more bytes are not hashed, which on the host would take 2 s a GiB: the answers that follow from such a
# value exceed what is kept, or leave no room for others.
LARGEST = 256 << 20
AN_ANSWER = 4096  # bytes that an answer counts in addition to its tensors
UNKNOWN = b"unknown "  # the beginning of the fingerprint of contents that were not hashed
ROW, AT_ONCE = 2048, 1 << 22  # words that are hashed to one fingerprint, and words that are hashed in one step
WORDS = 4  # 32-bit words of a fingerprint
SEED = secrets.randbits(63)  # the seed of the factors; nobody outside of this process knows it


def fingerprint(tree: Any) -> bytes:
    """Return a hash of the contents of a value: structure, types, shapes and bits. Above LARGEST bytes it differs each time."""
    if bytes_of(tree) > LARGEST:
        return UNKNOWN + secrets.token_bytes(16)
    found = hashlib.blake2b(digest_size=16)
    for path, leaf in leaves(tree):
        if isinstance(leaf, Tensor):
            found.update(f"{path} {leaf.dtype} {tuple(leaf.shape)}\0".encode())
            found.update(buffer_of(leaf if leaf.device.type == "cpu" else condensed(leaf)))
        else:
            found.update(f"{path} {type(leaf).__name__} {leaf!r}\0".encode())
    return found.digest()


def condensed(t: Tensor) -> Tensor:
    """Return a few kilobytes on the host that stand for a tensor. They are computed where the tensor lies: a card reads its own
    memory hundreds of times as fast as that is sent to the host and hashed.

    In each row, each 32-bit word is multiplied by a secret 64-bit factor of its place. The upper half of the sum, modulo 2^64, is
    the same for two different rows with a probability of 2^-32, whatever they are, and of 2^-128 with four sets of factors.
    (Multilinear hashing: Lemire and Kaser, "Strongly universal string hashing is fast", The Computer Journal 57(11), 2014.)
    """
    bits = bits_of(t)
    words = F.pad(bits, (0, -bits.numel() % 4)).view(torch.int32)
    generator = torch.Generator(words.device).manual_seed(SEED)
    whole = torch.iinfo(torch.int64)
    while words.numel() > ROW:
        factors = torch.randint(
            whole.min, whole.max, (WORDS, ROW), generator=generator, device=words.device, dtype=torch.int64
        )
        rows = F.pad(words, (0, -words.numel() % ROW)).view(-1, ROW)
        parts = [_upper_sums(some, factors) for some in rows.split(AT_ONCE // ROW)]
        words = torch.cat(parts).reshape(-1)
    return words.cpu()


def _upper_sums(rows: Tensor, factors: Tensor) -> Tensor:
    """Return the upper halves of the sums of each row: WORDS words a row, one for each set of factors."""
    wide = rows.to(torch.int64) & 0xFFFFFFFF
    return torch.stack([((wide * of).sum(1) >> 32).to(torch.int32) for of in factors], 1)


class Truths:
    """Answers of the latest references. `most`: the most bytes of them."""

    def __init__(self, most: int = MOST):
        self.most = most
        self.answers: OrderedDict[tuple[Any, ...], Reply] = OrderedDict()
        self.bytes = 0
        self.asked = self.found = 0

    def watch(self, worker: WorkerProcess, script: str) -> None:
        """From now on, answer requests to this reference's process from here where that is possible."""
        original = worker.ask
        state = _State(digest(Path(script)))

        def ask(op: str, value: Any = None, **fields: Any) -> Reply:
            key = (state.key(), op, json.dumps(fields, sort_keys=True)) if op in KEPT and state.known else None
            self.asked += op in KEPT
            if key is not None and (kept := self.answers.get(key)) is not None:
                self.found += 1
                self.answers.move_to_end(key)
                return Reply(dict(kept.header), kept.value, kept.wall)
            reply = original(op, value, **fields)
            state.follow(op, value, fields, reply)
            if key is not None:
                self._keep(key, reply)
            return reply

        worker.ask = ask  # type: ignore[method-assign]

    def _keep(self, key: tuple[Any, ...], reply: Reply) -> None:
        size = bytes_of(reply.value) + AN_ANSWER
        if size > self.most:
            return
        self.answers[key] = reply
        self.bytes += size
        while self.bytes > self.most:
            self.bytes -= bytes_of(self.answers.popitem(last=False)[1].value) + AN_ANSWER


class _State:
    """What the answers of a reference's process depend on, as far as its requests and answers tell."""

    def __init__(self, script: str):
        self.script = script
        self.model = self.inputs = self.output = self.other = self.kept = self.usual = b""

    def key(self) -> tuple[Any, ...]:
        return self.script, self.model, self.inputs, self.output, self.other

    @property
    def known(self) -> bool:
        """Whether an answer can be found again."""
        return not any(part.startswith(UNKNOWN) for part in (self.model, self.inputs, self.output))

    def follow(self, op: str, value: Any, fields: dict[str, Any], reply: Reply) -> None:
        found = reply.value
        if op == "construct":
            self.model = self.usual = fingerprint([found["init"], found["state"]])
        elif op == "build":
            self.model = self.usual = fingerprint([value["init"], value["state"]])
        elif op in ("vary", "probe"):
            if "why_not" in reply.header:  # what it varies may have been changed in part
                self.inputs = UNKNOWN
                if op == "probe" or fields["name"] in STATES:
                    self.model = UNKNOWN
            else:
                self.inputs, self.model = fingerprint(found["inputs"]), fingerprint(found["state"])
        elif op == "make_inputs":
            self.inputs = fingerprint(found)
        elif op == "set_inputs":
            self.inputs = fingerprint(value)
        elif op == "keep_inputs":
            self.kept = self.inputs
        elif op == "restore_inputs":
            self.inputs = self.kept
        elif op == "restore_parameters":
            self.model = self.usual if reply.header["kept"] else UNKNOWN
        elif op == "forward":
            self.output = fingerprint(found) + str(fields.get("seed")).encode()
        elif op in ("examine", "keep_changed_state", "keep_state"):
            said = {name: item for name, item in reply.header.items() if name != "nonce"}
            self.other += hashlib.blake2b(json.dumps([op, said], sort_keys=True, default=str).encode()).digest()[:8]
        elif op not in KEPT and op not in UNCHANGING:
            self._unknown()  # for example, adopt

    def _unknown(self) -> None:
        """Note that the inputs and parameters are unknown: until both are set again, no answer is looked up or kept."""
        self.inputs = self.model = UNKNOWN
