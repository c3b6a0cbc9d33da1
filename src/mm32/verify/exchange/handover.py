"""Large tensors on a card, from one process to another without a way through the host.

Both sides of the border import this module (see worker/__init__.py); it imports nothing else of this package but wire.py and
memory.py. All of the memory in which tensors pass is the tool's: new for each message, of the driver's (memory.py), and full of
POISON wherever none of the message's own bytes are, so that nobody finds in it what lay there before.

    the tool's tensors   go with its request: "value_on_card" describes them, the memory's descriptor comes beside it, and the
                         worker copies them before it does anything else.
    a worker's tensors   take two steps. It answers with their descriptions, "on_card". The tool checks these before it makes
                         memory of that size, and sends its descriptor in a second request, HAND_OVER. The worker copies its
                         tensors there. The tool copies them into memory of its own and gives the shared one back before it
                         looks at them: what a worker writes later changes nothing, what it did not write is POISON.

A region on the host (memory.HostRegion) does as well in place of a card's; tests use that.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from . import memory, wire

# Bytes of a tensor from which on it is handed over. Of 64 MB every copy by the host takes some 0.05 s, and each of the some forty
# times that such an output is judged 0.25 s on two cores: estimated, not measured on a machine with a card.
LARGE = 16 << 20
HAND_OVER = "hand_over"  # the second request
KEPT, SPARE = 0.2, 0.5  # of a card's memory: see make_room
POISON = 0xFF  # every byte: NaN in all floating-point dtypes

# Bound before any script is loaded, which may replace them.
_clone = torch.ops.aten.clone.default
_copy = Tensor.copy_
_detach = Tensor.detach
_synchronize = torch.cuda.synchronize
_empty_cache = torch.cuda.empty_cache
_mem_get_info = torch.cuda.mem_get_info
_memory_reserved = torch.cuda.memory_reserved
_memory_allocated = torch.cuda.memory_allocated

Described = list[
    list[Any]
]  # of each tensor that is handed over: its number among all of the message's, and its description


def chosen(tensors: Sequence[Tensor], device: str, least: int) -> list[int]:
    """The numbers of those that are handed over: of `least` bytes or more, and on that very device."""
    return [i for i, t in enumerate(tensors) if str(t.device) == device and t.numel() * t.element_size() >= least]


def split(tensors: Sequence[Tensor], numbers: Sequence[int]) -> tuple[list[Tensor], list[Tensor], Described]:
    """The tensors that are handed over, the others, and what `merged` needs to know of the former."""
    others = [t for i, t in enumerate(tensors) if i not in set(numbers)]
    return [tensors[i] for i in numbers], others, [[i, wire.meta_of(tensors[i])] for i in numbers]


class Load:
    """Tensors as they lie in the memory in which they pass. `others`: how many of the message travel otherwise.

    Raises ProtocolError where `described` is malformed, or speaks of a tensor of fewer than `least` bytes or of more than `limit`
    bytes in all.
    """

    def __init__(self, described: Any, others: int = 0, least: int = 1, limit: int | None = None):
        if not isinstance(described, list) or not described:
            raise wire.ProtocolError("malformed description of what is on the card")
        if not all(isinstance(one, list) and len(one) == 2 and type(one[0]) is int for one in described):
            raise wire.ProtocolError("malformed description of what is on the card")
        self.numbers = [number for number, _ in described]
        self.count = len(described) + others
        if sorted(set(self.numbers)) != self.numbers or not 0 <= self.numbers[0] <= self.numbers[-1] < self.count:
            raise wire.ProtocolError("tensors on the card have numbers that the message has not")
        self.metas = [wire.checked_meta(meta) for _, meta in described]
        sizes = [size for *_, size in self.metas]
        if min(sizes) < least:
            raise wire.ProtocolError(f"a tensor of {min(sizes)} bytes on the card, where it takes {least}")
        if limit is not None and sum(sizes) > limit:
            raise wire.ProtocolError(f"a payload of {sum(sizes)} bytes, where at most {limit} were expected")
        self.places, self.size = wire.places(sizes)

    def views(self, whole: Tensor) -> list[Tensor]:
        """The tensors over these bytes."""
        found = []
        for (dtype, shape, order, size), at in zip(self.metas, self.places, strict=True):
            flat = whole[at : at + size]
            found.append(wire.shaped(flat != 0 if dtype is torch.bool else flat.view(dtype), shape, order))
        return found

    def merged(self, large: Sequence[Tensor], others: Sequence[Tensor]) -> list[Tensor]:
        """All tensors of the message in their order."""
        by_number, rest = dict(zip(self.numbers, large, strict=True)), iter(others)
        return [by_number[i] if i in by_number else next(rest) for i in range(self.count)]


# ---------------------------------------------------------------------------------------------------------- the tool's


class Passage:
    """New memory of the tool's for one message; closed when the message has arrived. Raises OSError or RuntimeError where there
    is none."""

    def __init__(self, load: Load, device: torch.device):
        self.load, self.device = load, device
        make_room(device, load.size)  # what this process's allocator keeps would be missing here
        self.region, self._open = memory.reserve(load.size, device), True
        try:
            self.descriptor = self.region.create()
        except BaseException:
            self.close()
            raise

    def fill(self, tensors: Sequence[Tensor] = ()) -> None:
        """Put the tensors into it, and POISON everywhere else."""
        end = 0
        sizes = [size for *_, size in self.load.metas]
        for t, at, size in zip(tensors, self.load.places, sizes, strict=False):
            self.region.fill(end, at, POISON)
            self.region.write([(at, t.detach().permute(wire.axis_order(t)).contiguous().reshape(-1))])
            end = at + size
        self.region.fill(end, self.region.size, POISON)
        synchronize(self.device)

    def own(self) -> list[Tensor]:
        """Copies of what is in it now. The region's memory is given back before anybody looks at them."""
        whole = torch.empty(self.load.size, dtype=torch.uint8, device=self.device)
        self.region.read(0, whole)
        synchronize(self.device)
        self.close()
        return self.load.views(whole)

    def close(self) -> None:
        """Safe to call more than once."""
        if self._open:
            self._open = False
            self.region.close()


# ---------------------------------------------------------------------------------------------------------- a worker's


def take(described: Any, others: int, descriptor: int, device: torch.device) -> tuple[Load, list[Tensor]]:
    """Copies of what the tool gives beside `others` tensors that have come already. The descriptor is closed."""
    load = Load(described, others)
    with _mapped(load.size, descriptor, device) as whole:
        return load, [_clone(t) for t in load.views(whole)]


def put(tensors: Sequence[Tensor], size: int, descriptor: int, device: torch.device) -> None:
    """Copy tensors into the tool's memory of `size` bytes. The descriptor is closed."""
    places, _ = wire.places([t.numel() * t.element_size() for t in tensors])
    with _mapped(size, descriptor, device) as whole:
        for t, at in zip(tensors, places, strict=True):
            stored = _detach(t).permute(wire.axis_order(t))
            flat = whole[at : at + math.prod(stored.shape) * t.element_size()].view(t.dtype)
            _copy(flat.view(stored.shape), stored)
        synchronize(device)


@contextlib.contextmanager
def _mapped(size: int, descriptor: int, device: torch.device) -> Iterator[Tensor]:
    """The bytes of a descriptor's memory, meanwhile."""
    try:
        region = memory.reserve(size, device)
    except BaseException:
        os.close(descriptor)
        raise
    try:
        region.map(descriptor, [(0, size)])
        yield region.bytes()
    finally:
        region.close()


# ---------------------------------------------------------------------------------------------------------- both sides'


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        _synchronize(device)


def free(device: torch.device) -> None:
    """Give back what this process's allocator keeps of the card without using it: the other processes need it."""
    if device.type == "cuda":
        _empty_cache()


def make_room(device: torch.device, size: int = 0) -> None:
    """The same where it matters: this process's allocator keeps more than a KEPT part of the card, or less than a SPARE part
    of it is free beside `size` bytes. Memory that was given back takes milliseconds a gigabyte to have again."""
    if device.type != "cuda":
        return
    left, total = _mem_get_info(device)
    kept = _memory_reserved(device) - _memory_allocated(device)
    if kept > total * KEPT or left - size < total * SPARE:
        _empty_cache()
