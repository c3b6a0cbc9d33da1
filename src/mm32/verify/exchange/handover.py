"""Large tensors on a card, passed from one process to another without a copy through the host.

Both sides of the border import this module (see worker/__init__.py); it imports nothing else of this package but wire.py and
memory.py. All memory in which tensors pass belongs to the tool. It is new for each message, allocated by the driver (memory.py),
and full of POISON wherever it has no bytes of the message, so that nobody finds in it what lay there before.

    the tool's tensors   go with its request: "value_on_card" describes them, the memory's descriptor comes beside it, and the
                         worker copies them before it does anything else.
    a worker's tensors   take two steps. The worker answers with their descriptions, "on_card". The tool checks these before it
                         makes memory of that size, and sends its descriptor in a second request, HAND_OVER. The worker copies
                         its tensors there. The tool copies them into memory of its own, and gives the shared memory back before
                         it looks at them: what a worker writes later changes nothing, and what it did not write is POISON.

A region on the host (memory.HostRegion) works as well as one on a card; tests use that.
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

# Tensors of so many bytes or more are handed over. Every copy of 64 MB through the host takes some 0.05 s. Such an output is
# judged some forty times, and each of these takes 0.25 s on two cores. Estimated, not measured on a machine with a card.
LARGE = 16 << 20
HAND_OVER = "hand_over"  # the second request
KEPT, SPARE = 0.2, 0.5  # shares of a card's memory: see make_room
POISON = 0xFF  # every byte: NaN in all floating-point dtypes

# Bound before any script is loaded: a script may replace the originals.
_clone = torch.ops.aten.clone.default
_copy = Tensor.copy_
_detach = Tensor.detach
_synchronize = torch.cuda.synchronize
_empty_cache = torch.cuda.empty_cache
_mem_get_info = torch.cuda.mem_get_info
_memory_reserved = torch.cuda.memory_reserved
_memory_allocated = torch.cuda.memory_allocated

# For each tensor that is handed over: its number among all tensors of the message, and its description.
Described = list[list[Any]]


def chosen(tensors: Sequence[Tensor], device: str, least: int) -> list[int]:
    """Return the numbers of the tensors that are handed over: those of `least` bytes or more that are on exactly that device."""
    return [i for i, t in enumerate(tensors) if str(t.device) == device and t.numel() * t.element_size() >= least]


def split(tensors: Sequence[Tensor], numbers: Sequence[int]) -> tuple[list[Tensor], list[Tensor], Described]:
    """Return the tensors that are handed over, the others, and the description of the former for `Load`."""
    others = [t for i, t in enumerate(tensors) if i not in set(numbers)]
    return [tensors[i] for i in numbers], others, [[i, wire.meta_of(tensors[i])] for i in numbers]


class Load:
    """The layout of tensors in the memory in which they pass. `others`: how many tensors of the message travel otherwise.

    Raises ProtocolError where `described` is malformed, or describes a tensor of fewer than `least` bytes, or more than `limit`
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
        """Return the tensors that lie in these bytes."""
        found = []
        for (dtype, shape, order, size), at in zip(self.metas, self.places, strict=True):
            flat = whole[at : at + size]
            found.append(wire.shaped(flat != 0 if dtype is torch.bool else flat.view(dtype), shape, order))
        return found

    def merged(self, large: Sequence[Tensor], others: Sequence[Tensor]) -> list[Tensor]:
        """Return all tensors of the message in their order."""
        by_number, rest = dict(zip(self.numbers, large, strict=True)), iter(others)
        return [by_number[i] if i in by_number else next(rest) for i in range(self.count)]


# ---------------------------------------------------------------------------------------------------------- the tool's


class Passage:
    """New memory of the tool's for one message; closed when the message has arrived. Raises OSError or RuntimeError where there
    is no memory."""

    def __init__(self, load: Load, device: torch.device):
        self.load, self.device = load, device
        make_room(device, load.size)  # memory that this process's allocator keeps unused would be missing here
        self.region, self._open = memory.reserve(load.size, device), True
        try:
            self.descriptor = self.region.create()
        except BaseException:
            self.close()
            raise

    def fill(self, tensors: Sequence[Tensor] = ()) -> None:
        """Copy the tensors into it, and POISON everywhere else."""
        end = 0
        sizes = [size for *_, size in self.load.metas]
        for t, at, size in zip(tensors, self.load.places, sizes, strict=False):
            self.region.fill(end, at, POISON)
            self.region.write([(at, t.detach().permute(wire.axis_order(t)).contiguous().reshape(-1))])
            end = at + size
        self.region.fill(end, self.region.size, POISON)
        synchronize(self.device)

    def own(self) -> list[Tensor]:
        """Return copies of what is in it now. The region's memory is given back before anybody looks at them."""
        whole = torch.empty(self.load.size, dtype=torch.uint8, device=self.device)
        self.region.read(0, whole)
        synchronize(self.device)
        self.close()
        return self.load.views(whole)

    def close(self) -> None:
        """Give the memory back. Safe to call more than once."""
        if self._open:
            self._open = False
            self.region.close()


# ---------------------------------------------------------------------------------------------------------- a worker's


def take(described: Any, others: int, descriptor: int, device: torch.device) -> tuple[Load, list[Tensor]]:
    """Return the layout and copies of what the tool hands over beside `others` tensors that have come. Closes the descriptor."""
    load = Load(described, others)
    with _mapped(load.size, descriptor, device) as whole:
        return load, [_clone(t) for t in load.views(whole)]


def put(tensors: Sequence[Tensor], size: int, descriptor: int, device: torch.device) -> None:
    """Copy tensors into the tool's memory of `size` bytes. Closes the descriptor."""
    places, _ = wire.places([t.numel() * t.element_size() for t in tensors])
    with _mapped(size, descriptor, device) as whole:
        for t, at in zip(tensors, places, strict=True):
            stored = _detach(t).permute(wire.axis_order(t))
            flat = whole[at : at + math.prod(stored.shape) * t.element_size()].view(t.dtype)
            _copy(flat.view(stored.shape), stored)
        synchronize(device)


@contextlib.contextmanager
def _mapped(size: int, descriptor: int, device: torch.device) -> Iterator[Tensor]:
    """Map a descriptor's memory, and give its bytes meanwhile. Closes the descriptor."""
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
    """Give back the card's memory that this process's allocator keeps unused: the other processes need it."""
    if device.type == "cuda":
        _empty_cache()


def make_room(device: torch.device, size: int = 0) -> None:
    """As `free`, but only where it matters: if this process's allocator keeps more than the share KEPT of the card's memory
    unused, or less than the share SPARE is free beside `size` bytes. Getting memory again after that takes milliseconds a
    gigabyte."""
    if device.type != "cuda":
        return
    left, total = _mem_get_info(device)
    kept = _memory_reserved(device) - _memory_allocated(device)
    if kept > total * KEPT or left - size < total * SPARE:
        _empty_cache()
