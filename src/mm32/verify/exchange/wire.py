"""The format in which the tool and its workers exchange values: length-prefixed frames of JSON and raw tensor bytes.

Both sides of the border import this module (see worker/__init__.py). It imports nothing else of this package but memory.py
and named.py.
Nothing that arrives is ever unpickled or evaluated, because the other end may be running a candidate's code. A frame is

    4 bytes   b"MM32"
    u32       length of the header, little-endian
    u64       length of the payload
    header    JSON object; its "tensors" list gives dtype, shape and axis order of every tensor in the payload
    payload   the tensors' bytes, one after the other

Large tensors do not travel in the payload, but in files in memory, whose descriptors the tool sends with its request. The tool's
own tensors are in a file that nobody can change any more; a worker's answer goes into another file of the tool's; see `to_file`.
A worker sends no descriptors. Large tensors on a card stay there: see handover.py.

A value (a list of inputs, a tuple of outputs, a constructor's arguments) is a tree of tagged nodes in the header, whose leaves
are plain values or the numbers of tensors in the payload; see `pack`.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from . import memory, named

MAGIC = b"MM32"
PREFIX = struct.Struct("<4sIQ")
MAX_HEADER = 4 << 20
MAX_NODES = 100_000
MAX_DEPTH = 32
CHUNK = 1 << 20
LARGE = 1 << 20  # the tensors of a value of so many bytes or more travel in a file
LARGEST_FILE = 4 << 30  # the most bytes of an answer in a file; a worker may write files of at most 8 GiB
ALIGNED = 64  # bytes to which each tensor in a file is aligned

DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
        *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool),
    )
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class ProtocolError(Exception):
    """The bytes that arrived are not a frame, or a frame's value is malformed."""


class Closed(Exception):
    """The other end has closed the connection."""


class Unsupported(TypeError):
    """A value of a type that frames cannot carry: `value`, at `path` in what was packed."""

    def __init__(self, what: str, value: Any = None, path: str = ""):
        super().__init__(what)
        self.value, self.path = value, path


# ---------------------------------------------------------------------------------------------------------- values


def pack(value: Any, tensors: list[Tensor], depth: int = 0, path: str = "") -> dict[str, Any]:
    """Return `value` as a JSON node, and append its tensors to `tensors`. Raises Unsupported for a type that cannot be sent.

    `path`: the expression that selects it in the whole."""
    if depth > MAX_DEPTH:
        raise Unsupported(f"nested more than {MAX_DEPTH} deep", path=path)
    if isinstance(value, Tensor):
        if value.is_nested or value.layout != torch.strided or value.dtype not in DTYPE_NAMES:
            raise Unsupported(f"a tensor of layout {value.layout} and dtype {value.dtype}", value, path)
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if value is None or isinstance(value, (bool, int, float, str)):
        for plain in (bool, int, float, str):
            if isinstance(value, plain):
                return {"value": plain(value)}  # a subclass is sent as the plain type
        return {"value": None}
    if isinstance(value, (torch.dtype, torch.Size)):
        if isinstance(value, torch.Size):
            return {"tuple": [{"value": int(n)} for n in value]}
        return {"dtype": DTYPE_NAMES[value]} if value in DTYPE_NAMES else _unsupported(value, path)
    if isinstance(value, dict):
        if not all(isinstance(key, (str, int)) for key in value):
            raise Unsupported("a dict with keys that are neither str nor int", path=path)
        return {"dict": [[key, pack(item, tensors, depth + 1, f"{path}[{key!r}]")] for key, item in value.items()]}
    if isinstance(value, (tuple, list)):
        items = [pack(item, tensors, depth + 1, f"{path}[{i}]") for i, item in enumerate(value)]
        kind = named.kind_of(value) if isinstance(value, tuple) else None
        if kind is not None:
            return {"named": [kind[0], list(kind[1]), items]}
        return {"tuple" if isinstance(value, tuple) else "list": items}
    return _unsupported(value, path)


def _unsupported(value: Any, path: str) -> Any:
    raise Unsupported(f"a value of type {type(value).__module__}.{type(value).__qualname__}", value, path)


def unpack(node: Any, tensors: Sequence[Tensor], classes: named.Classes = named.plain_class) -> Any:
    """Return the value that `pack` described, its named tuples in the classes that `classes` returns. Raises ProtocolError for
    anything else."""
    return _Unpacking(tensors, classes).value(node, 0)


class _Unpacking:
    """The value of a node, and what is left of the limits on all of its parts."""

    def __init__(self, tensors: Sequence[Tensor], classes: named.Classes):
        self.tensors, self.classes = tensors, classes
        self.nodes = MAX_NODES
        self.kinds: dict[named.Kind, Any] = {}

    def value(self, node: Any, depth: int) -> Any:
        self.nodes -= 1
        if self.nodes < 0 or depth > MAX_DEPTH or not isinstance(node, dict) or len(node) != 1:
            raise ProtocolError("malformed value")
        ((tag, body),) = node.items()
        if tag == "tensor" and type(body) is int and 0 <= body < len(self.tensors):
            return self.tensors[body]
        if tag == "value" and (body is None or type(body) in (bool, int, float, str)):
            return body
        if tag == "dtype" and isinstance(body, str) and body in DTYPES:
            return DTYPES[body]
        if tag in ("list", "tuple") and isinstance(body, list):
            items = [self.value(item, depth + 1) for item in body]
            return tuple(items) if tag == "tuple" else items
        if tag == "named":
            return self._named(body, depth)
        if tag == "dict" and isinstance(body, list):
            result = {}
            for pair in body:
                if not (isinstance(pair, list) and len(pair) == 2 and type(pair[0]) in (str, int)):
                    raise ProtocolError("malformed dict")
                result[pair[0]] = self.value(pair[1], depth + 1)
            return result
        raise ProtocolError("malformed value")

    def _named(self, body: Any, depth: int) -> Any:
        """Return the named tuple of a name, fields and items."""
        if not (isinstance(body, list) and len(body) == 3 and isinstance(body[2], list)):
            raise ProtocolError("malformed named tuple")
        name, fields, items = body
        if not (named.is_kind(name, fields) and len(items) == len(fields)):
            raise ProtocolError("malformed named tuple")
        kind = name, tuple(fields)
        if kind not in self.kinds:
            if len(self.kinds) == named.MOST_KINDS:
                raise ProtocolError(f"named tuples of more than {named.MOST_KINDS} kinds")
            self.kinds[kind] = self.classes(kind)
        return self.kinds[kind]._make([self.value(item, depth + 1) for item in items])


def anew(value: Any) -> Any:
    """Return an input with new lists and dicts: what a call takes out of them is there again for the next call."""
    return pytree.tree_map(lambda x: x, value) if isinstance(value, (list, tuple, dict)) else value


def leaves(value: Any, path: str = "output") -> list[tuple[str, Any]]:
    """Return the tensors and scalars of a tree, each with the expression that selects it; tuples and lists are treated alike."""
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in leaves(item, f"{path}[{key!r}]")]
    if isinstance(value, (list, tuple)):
        return [leaf for i, item in enumerate(value) for leaf in leaves(item, f"{path}[{i}]")]
    return [(path, value)]


def bytes_of(tree: Any) -> int:
    """Return the bytes of all tensors of a tree."""
    return sum(leaf.nbytes for _, leaf in leaves(tree) if isinstance(leaf, Tensor))


def state_payload(state: Any) -> int:
    """Return the most bytes that an answer with buffers like these may have."""
    return 4 * bytes_of(state) + (64 << 20)


def rebuilt(tree: Any, found: Iterator[Any]) -> Any:
    """Return a value of the form of `tree` with the leaves `found`, in the order of `leaves`."""
    if isinstance(tree, dict):
        return {key: rebuilt(item, found) for key, item in tree.items()}
    if isinstance(tree, (list, tuple)):
        return named.like(tree, [rebuilt(item, found) for item in tree])
    return next(found)


def beside(value: Any, right: Any) -> Any:
    """Return `value` with each tensor on the device of its counterpart in `right`, if they are alike in shape and dtype, and with
    the keys of dicts in the same order. Whether a worker's tensor arrives on the card or on the host depends on its size, and on
    what the worker says."""
    mine, theirs = leaves(value), leaves(right)
    if [path for path, _ in mine] != [path for path, _ in theirs]:
        by_path = dict(mine)
        if len(by_path) != len(mine) or len(mine) != len(theirs) or set(by_path) != {path for path, _ in theirs}:
            return value
        mine = [(path, by_path[path]) for path, _ in theirs]
        value = rebuilt(right, iter([leaf for _, leaf in mine]))

    def apart(a: Any, b: Any) -> bool:
        alike = isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and a.dtype == b.dtype
        return alike and a.device != b.device

    pairs = [(a, b) for (_, a), (_, b) in zip(mine, theirs, strict=True)]
    if not any(apart(a, b) for a, b in pairs):
        return value
    return rebuilt(value, iter([a.to(b.device) if apart(a, b) else a for a, b in pairs]))


# ---------------------------------------------------------------------------------------------------------- tensors


def axis_order(t: Tensor) -> list[int]:
    """Return the axes from the largest stride to the smallest, so that a transposed view is received as the same view."""
    strides = t.stride()
    order = sorted(range(t.dim()), key=lambda axis: (-strides[axis], axis))
    return order if t.permute(order).is_contiguous() else list(range(t.dim()))


def _bytes(t: Tensor, order: list[int]) -> memoryview:
    return memory.buffer_of(t.detach().cpu().permute(order))


def meta_of(t: Tensor) -> dict[str, Any]:
    """Return what `checked_meta` takes: dtype, shape and axis order, as JSON."""
    return {"dtype": DTYPE_NAMES[t.dtype], "shape": list(t.shape), "order": axis_order(t)}


# The product of a shape must be less, with 1 in the place of 0: torch multiplies in 64 bits, axis by axis.
MOST_ENTRIES = 1 << 56


def checked_meta(meta: Any) -> tuple[torch.dtype, list[int], list[int], int]:
    """Return dtype, shape, axis order and bytes of a tensor that the other end describes. Raises ProtocolError."""
    try:
        dtype, shape, order = DTYPES[meta["dtype"]], meta["shape"], meta["order"]
        fine = isinstance(shape, list) and all(type(n) is int and 0 <= n < 1 << 48 for n in shape) and len(shape) <= 64
        fine = fine and isinstance(order, list) and all(type(axis) is int for axis in order)
        fine = fine and sorted(order) == list(range(len(shape)))
        fine = fine and math.prod(max(n, 1) for n in shape) < MOST_ENTRIES
    except (KeyError, TypeError) as error:
        raise ProtocolError(f"malformed tensor description: {error!r}") from None
    if not fine:
        raise ProtocolError("malformed tensor description")
    return dtype, shape, order, math.prod(shape) * dtype.itemsize


def shaped(flat: Tensor, shape: Sequence[int], order: Sequence[int]) -> Tensor:
    """Return a vector of entries, in the order of memory, as a tensor of this shape whose axes lie in memory in this order."""
    return flat.reshape([shape[axis] for axis in order]).permute([order.index(axis) for axis in range(len(order))])


def _from_bytes(buffer: memoryview, dtype: torch.dtype, shape: list[int], order: list[int]) -> Tensor:
    if len(buffer) == 0:
        return shaped(torch.empty(0, dtype=dtype), shape, order)
    flat = torch.frombuffer(buffer, dtype=torch.uint8)
    if dtype is torch.bool:
        flat = flat != 0
    else:
        # Tensors lie one after the other in the payload, so this one may not be aligned for its dtype.
        flat = (flat if flat.data_ptr() % dtype.itemsize == 0 else flat.clone()).view(dtype)
    return shaped(flat, shape, order)


# ---------------------------------------------------------------------------------------------------------- files


def size_of(tensors: Sequence[Tensor]) -> int:
    """Return the bytes of all their entries."""
    return sum(t.numel() * t.element_size() for t in tensors)


def places(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Return where tensors of these sizes in bytes begin in a file, and where the last one ends."""
    starts, at = [], 0
    for size in sizes:
        starts.append(at)
        at += -(-size // ALIGNED) * ALIGNED
    return starts, at


def to_file(descriptor: int, tensors: Sequence[Tensor]) -> list[dict[str, Any]]:
    """Write tensors to a file in memory. Returns their descriptions, for `from_file`. Raises OSError where there is no room."""
    metas = [meta_of(t) for t in tensors]
    starts, _ = places([t.numel() * t.element_size() for t in tensors])
    for t, meta, at in zip(tensors, metas, starts, strict=True):
        memory.write_file(descriptor, _bytes(t, meta["order"]), at)
    return metas


def from_file(descriptor: int, metas: Any, trusted: bool, limit: int | None = None) -> list[Tensor]:
    """Return the tensors that `to_file` has written. They are copies, unless whoever wrote them is `trusted` not to change them
    later: then they lie over the file's own memory, and a write to one of them makes a copy of its page.

    Raises ProtocolError where `metas` are malformed or have more than `limit` bytes, or the file is too short; OSError where it
    cannot be read.
    """
    if not isinstance(metas, list):
        raise ProtocolError("malformed description of a file")
    checked = [checked_meta(meta) for meta in metas]
    starts, end = places([size for *_, size in checked])
    if limit is not None and end > limit + ALIGNED * len(checked):
        raise ProtocolError(f"a payload of {end} bytes, where at most {limit} were expected")
    last = max((at + size for at, (*_, size) in zip(starts, checked, strict=True) if size), default=0)
    if os.fstat(descriptor).st_size < last:
        raise ProtocolError("a file in memory that is too short")
    if trusted and last:
        whole = memoryview(mmap.mmap(descriptor, last, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE))
    else:
        whole = memory.buffer_of(torch.empty(last, dtype=torch.uint8))
        memory.read_file(descriptor, whole, 0)
    return [
        _from_bytes(whole[at : at + size], dtype, shape, order)
        for (dtype, shape, order, size), at in zip(checked, starts, strict=True)
    ]


# ---------------------------------------------------------------------------------------------------------- frames


class Connection:
    """One end of a stream socket that carries frames. Large values travel beside them: see `to_file`.

    `idle` is called about ten times a second while `send` and `receive` wait; an exception that it raises ends the wait.
    File descriptors travel beside a frame (SCM_RIGHTS). Only a worker's end, with `descriptors`, takes them; it finds their
    numbers under "descriptors" in the header. At the tool's end the kernel drops any that a worker may send.
    """

    def __init__(self, sock: socket.socket, idle: Callable[[], None] | None = None, descriptors: bool = False):
        self.sock = sock
        self.descriptors: list[int] | None = [] if descriptors else None
        self.idle = idle
        self._ticked = time.monotonic()
        sock.settimeout(0.1 if idle else None)

    def send(self, header: dict[str, Any], tensors: Sequence[Tensor] = (), descriptors: Sequence[int] = ()) -> None:
        metas = [meta_of(t) for t in tensors]
        head = json.dumps({**header, "tensors": metas}).encode()
        total = size_of(tensors)
        start = memoryview(PREFIX.pack(MAGIC, len(head), total) + head)
        self._send(start[self._send_descriptors(start, descriptors) :] if descriptors else start)
        for t, meta in zip(tensors, metas, strict=True):
            self._send(_bytes(t, meta["order"]))

    def _send_descriptors(self, data: memoryview, descriptors: Sequence[int]) -> int:
        """Send the beginning of `data` with descriptors beside it. Returns how many bytes were sent."""
        while True:
            self._tick()
            try:
                return socket.send_fds(self.sock, [data[:CHUNK]], list(descriptors))
            except TimeoutError:
                continue
            except OSError as error:
                raise Closed(str(error)) from None

    def _send(self, data: memoryview) -> None:
        while len(data):
            self._tick()
            try:
                data = data[self.sock.send(data[:CHUNK]) :]
            except TimeoutError:
                continue
            except OSError as error:
                raise Closed(str(error)) from None

    def receive(self, max_payload: int | None = None) -> tuple[dict[str, Any], list[Tensor]]:
        magic, head_size, payload_size = PREFIX.unpack(self._receive(PREFIX.size))
        if magic != MAGIC or head_size > MAX_HEADER:
            raise ProtocolError("these bytes are not a frame")
        try:
            header = json.loads(bytes(self._receive(head_size)).decode())
        except (ValueError, RecursionError):
            raise ProtocolError("the header is not JSON") from None
        metas = header.pop("tensors", None) if isinstance(header, dict) else None
        if not isinstance(metas, list):
            raise ProtocolError("the header is not an object with a list of tensors")
        checked = [checked_meta(meta) for meta in metas]
        if sum(size for *_, size in checked) != payload_size:
            raise ProtocolError("the payload's length is not that of its tensors")
        if max_payload is not None and payload_size > max_payload:
            raise ProtocolError(f"a payload of {payload_size} bytes, where at most {max_payload} were expected")
        if self.descriptors is not None:
            header["descriptors"], self.descriptors = self.descriptors, []
        payload = self._receive(payload_size)
        tensors, at = [], 0
        for dtype, shape, order, size in checked:
            tensors.append(_from_bytes(payload[at : at + size], dtype, shape, order))
            at += size
        return header, tensors

    def _tick(self) -> None:
        """Call `idle` if a tenth of a second has passed, whether the other end is silent or sends a byte at a time."""
        now = time.monotonic()
        if self.idle and now - self._ticked > 0.1:
            self._ticked = now
            self.idle()

    def _receive(self, size: int) -> memoryview:
        buffer = memoryview(bytearray(size))
        got = 0
        while got < size:
            self._tick()
            try:
                n = self._read(buffer[got : got + CHUNK])
            except TimeoutError:
                continue
            except OSError as error:
                raise Closed(str(error)) from None
            if n == 0:
                raise Closed("end of stream")
            got += n
        return buffer

    def _read(self, buffer: memoryview) -> int:
        if self.descriptors is None:
            return self.sock.recv_into(buffer)
        data, found, _, _ = socket.recv_fds(self.sock, len(buffer), 4)
        buffer[: len(data)] = data
        self.descriptors += found
        return len(data)
