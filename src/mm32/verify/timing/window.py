"""One worker's timed windows, from the trusted side: it owns the data, the clock and what is judged.

For a window, new memory that the worker has never seen is filled: the inputs' part with fresh inputs for every call, the
outputs' part with a pattern that is no output. A message that asks for next to nothing wakes the worker, so that no worker begins
a window asleep, however long ago its last one was. Then the clock starts. One message carries the memory's descriptor and the
number of calls. The worker maps the memory, calls the model on slot after slot, and copies each output into its slot. The clock
stops when this process has copied all outputs into memory of its own. What the worker says of the window (that it is done, how
long it took) decides nothing: a result that comes later is not in the copy. Every window has the same messages, whichever of
its outputs are looked at.

Since the inputs are not visible before the clock runs, neither a polling thread nor a persistent kernel can begin early.
Filling the memory is in no window's time. What a window takes besides the calls is measured with the null worker.
"""

from __future__ import annotations

import math
import mmap
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor

from ..exchange import memory
from ..exchange.handover import POISON
from ..exchange.named import like
from ..inputs.pools import Pools, Recipe, parts
from ..processes.channel import Failure, Reply
from .settling import settle

# Bytes of outputs that are compared at once on a CPU, whose caches hold them; 64 times as many on a GPU.
BLOCK = 1 << 20
KEPT = 256 << 20  # the most bytes of outputs whose memory is kept from window to window
# Seconds that a worker may take to wake up before a window; an honest one takes 0.1 ms. A process that has slept for longer
# begins later: with a worker woken before it, a window of one matrix-vector product on 8 GB took 0.3 ms less, or 7 %.
WAKING = 0.005
UNWATCHED = 1.0  # the first seconds of a window, in which the worker is only waited for, not watched


class Asked(Protocol):
    """The part of WorkerProcess that a Bench needs."""

    role: str

    def ask(self, op: str, value: Any = None, **fields: Any) -> Reply: ...

    def watch(self) -> None: ...


@dataclass
class Window:
    """The outcome of one window.

    `seconds`: by the tool's clock; `outputs`: their bytes, a row for each slot; `misfit`: what did not fit into a slot. From
    `misfit_call` on, the fields are the worker's own account."""

    seconds: float
    outputs: Tensor
    misfit: str | None = None
    misfit_call: int = 0  # the call whose output that was
    values: list[Any] = field(default_factory=list)  # leaves that are not tensors, call after call
    claimed: float = 0.0  # seconds by the worker's clock
    draws: bool = False  # whether the calls drew random numbers
    state: Any = None  # the buffers as the last call left them, where they were asked for


# By worker, the bench whose slots it has. The references are weak: a bench's pools may be gigabytes.
_of_worker: WeakKeyDictionary[Asked, ref[Bench]] = WeakKeyDictionary()


class Bench:
    """The slots of one worker: `count` of them, for inputs like the pools' and outputs like `output` (path, leaf).

    `names`: the inputs' names, where the model takes them by name."""

    def __init__(
        self,
        worker: Asked,
        pools: Pools,
        output: Sequence[tuple[str, Any]],
        count: int,
        device: torch.device,
        timeout: float | None = None,
        names: list[str] | None = None,
    ):
        self.worker, self.pools, self.count, self.device, self.timeout = worker, pools, count, device, timeout
        self.inputs, self.outputs_at = parts(pools.leaves, 0, count)
        self.inputs = [part for part in self.inputs if part.dtype is not None]
        self.outputs_at = -(-self.outputs_at // mmap.PAGESIZE) * mmap.PAGESIZE
        self.outputs, self.size = parts(output, self.outputs_at, count)
        self.region = memory.reserve(max(self.size, 1), device)
        self.used = False  # whether a window has been made
        # If a slot could not take an output: what the output was, and the recipe and the seed of its call.
        self.misfit = ""
        self.misfit_call: tuple[Recipe, int] | None = None
        self._kept: Tensor | None = None  # memory for a window's outputs
        _of_worker[worker] = ref(self)
        stand_ins = _stand_ins(pools.tree)
        worker.ask(
            "slots",
            stand_ins,
            size=max(self.size, 1),
            count=count,
            inputs=[part.described() for part in self.inputs],
            outputs=[part.described() for part in self.outputs],
            null=worker.role == "null",
            names=names,
            stated=bool(pools.state),
        )

    @property
    def current(self) -> bool:
        """Whether the worker still has these slots: a worker has only those of its latest bench."""
        return _of_worker[self.worker]() is self

    def close(self) -> None:
        self._kept = None
        self.region.close()

    def leave_outputs(self) -> None:
        """Put the next window's outputs into other memory: the last one's are still needed."""
        self._kept = None

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _settle(self) -> None:
        if self.device.type == "cuda":
            settle(self.device)

    def window(
        self,
        recipes: Sequence[Recipe],
        seeds: Sequence[int] = (),
        deliver: bool = True,
        watch: bool = False,
        state: int | None = None,
    ) -> Window:
        """Time the model's calls on the data of `recipes`, one for each slot from the first on. Raises Failure.

        With `seeds`, the generators are seeded with these, call by call. With `watch`, the worker says whether random numbers
        were drawn. Without `deliver`, the null worker leaves out the copies of its outputs. With `state`, the buffers that the
        last call leaves are fetched before the clock stops, so that nothing of them can be left for later; they may have at most
        `state` bytes.
        """
        self.used = True
        self.worker.watch()
        outputs = self._outputs(len(recipes))
        descriptor = self._filled(recipes)
        try:
            self.synchronize()
            late = self._awake()
            begin = time.perf_counter() - late
            reply = self.worker.ask(
                "window",
                descriptors=[descriptor],
                unwatched=UNWATCHED,
                ranges=self._ranges(len(recipes)),
                count=len(recipes),
                seeds=list(seeds),
                deliver=deliver,
                watch=watch,
                timeout=self.timeout,
            )
            self.region.read(self.outputs_at, outputs)
            left = None
            if state is not None:
                left = self.worker.ask("get_state", max_payload=state, timeout=self.timeout).value
            self.synchronize()
            seconds = time.perf_counter() - begin
            looks = self.worker.role == "candidate"
            wrote = looks and self._written(recipes)  # before anything of it runs again, which could undo this
            self.worker.ask("release", timeout=self.timeout)
            wrote = wrote or (looks and self._written(recipes))  # what was still running then
        finally:
            self.region.release()
        plain = sum(part.dtype is None for part in self.outputs) * len(recipes)
        found = checked(reply.header, seconds, outputs, self.worker.role, plain)
        found.state = left
        if wrote and found.misfit is None:
            found.misfit = "the candidate modifies its inputs in timed calls"
        if found.misfit is not None:
            at = min(found.misfit_call, len(recipes) - 1)
            self.misfit, self.misfit_call = found.misfit, (recipes[at], seeds[at] if seeds else 0)
        return found

    def _awake(self) -> float:
        """Wait until a card's memory is calm, with the worker awake. Return the seconds that waking it took beyond WAKING.

        These count as part of the window, so that a worker gains nothing by resting or preparing something then."""
        self._settle()
        begin = time.perf_counter()
        self.worker.ask("wake", unwatched=UNWATCHED, timeout=self.timeout)
        late = time.perf_counter() - begin - WAKING
        self._settle()  # also, the caches then no longer hold what the worker may have read
        return max(0.0, late)

    def _written(self, recipes: Sequence[Recipe]) -> bool:
        """Return whether the inputs of one call, drawn at random, are no longer what they were."""
        slot = secrets.randbelow(len(recipes))
        for part, pieces in zip(self.inputs, self.pools.pieces(recipes[slot]), strict=True):
            at = part.at(slot)
            for piece in pieces:
                expected = memory.bits_of(piece)
                found = torch.empty_like(expected)
                self.region.read(at, found)
                if not torch.equal(found, expected):
                    return True
                at += expected.numel()
        return False

    def give(self, recipe: Recipe) -> None:
        """Make a recipe's data the worker's inputs, for calls outside of windows."""
        descriptor = self._filled([recipe])
        try:
            self.synchronize()
            self.worker.ask("adopt", descriptors=[descriptor], ranges=self._ranges(1), timeout=self.timeout)
        finally:
            self.region.release()

    def _outputs(self, calls: int) -> Tensor:
        """Return memory of this process for the outputs of `calls` calls, touched beforehand; unless it is more than KEPT, it is
        the same in every window."""
        kept = self._kept
        if kept is None:
            kept = torch.empty(self.count, self._step, dtype=torch.uint8, device=self.device).fill_(0)
            self._kept = kept if kept.numel() <= KEPT else None
        return kept[:calls]

    def _ranges(self, calls: int) -> list[tuple[int, int]]:
        """Return the ranges of the region's bytes that `calls` calls use."""
        inputs = next((part.step for part in self.inputs), 0)
        if calls == self.count:
            return [(0, self.size)] if self.size else []
        found = [(0, inputs * calls), (self.outputs_at, self.outputs_at + self._step * calls)]
        return [(begin, end) for begin, end in found if end > begin]

    @property
    def _step(self) -> int:
        return next((part.step for part in self.outputs if part.dtype is not None), 0)

    def _filled(self, recipes: Sequence[Recipe]) -> int:
        """Return a descriptor of new memory in the region, with the data of `recipes`, and with poison in place of outputs."""
        descriptor = self.region.create()
        null = self.worker.role == "null"  # the null worker looks at no inputs
        if self.device.type == "cuda":  # another worker's data may have been there, also between the slots
            poisoned = [(0, self.region.size)]
        elif null:
            poisoned = self._ranges(len(recipes))
        else:
            poisoned = [(self.outputs_at, self.outputs_at + self._step * len(recipes))]
        for begin, end in poisoned:
            self.region.fill(begin, end, POISON)
        if null:
            return descriptor
        for slot, recipe in enumerate(recipes):
            vectors = []
            for part, pieces in zip(self.inputs, self.pools.pieces(recipe), strict=True):
                at = part.at(slot)
                for piece in pieces:
                    vectors.append((at, piece))
                    at += piece.numel() * piece.element_size()
            self.region.write(vectors)
        return descriptor

    def leaves(self, window: Window, call: int) -> list[Tensor]:
        """Return the output tensors of one call, as views of the window's private copy."""
        row = window.outputs[call]
        base = self.outputs_at
        found = []
        for part in self.outputs:
            if part.dtype is not None:
                at = part.offset - base
                found.append(row[at : at + part.bytes].view(part.dtype).as_strided(part.shape, part.strides))
        return found


def checked(header: dict[str, Any], seconds: float, outputs: Tensor, role: str, plain: int) -> Window:
    """Return the window of a worker's answer, which must have values of exact types, `plain` of them besides the tensors.

    Raises Failure for any other answer."""
    misfit, values, claimed = header.get("misfit"), header.get("values"), header.get("seconds")
    if not (misfit is None or type(misfit) is str) or type(values) is not list or type(claimed) is not float:
        raise Failure("channel", "answered a timed window with something else", role=role)
    if not all(value is None or type(value) in (bool, int, float, str) for value in values):
        raise Failure("channel", "answered a timed window with values of other types", role=role)
    if misfit is None and role != "null" and len(values) != plain:
        raise Failure("channel", f"answered a timed window with {len(values)} values instead of {plain}", role=role)
    at = header.get("misfit_call")
    at = at if type(at) is int and at >= 0 else 0
    return Window(seconds, outputs, misfit, at, values, claimed, header.get("draws") is True)


def _stand_ins(tree: Any) -> Any:
    """`tree` with an empty tensor in the place of each tensor."""
    if isinstance(tree, Tensor):
        return torch.empty(0)
    if isinstance(tree, dict):
        return {key: _stand_ins(item) for key, item in tree.items()}
    if isinstance(tree, (list, tuple)):
        return like(tree, [_stand_ins(item) for item in tree])
    return tree


def difference(bench: Bench, a: Window, b: Window) -> list[float]:
    """Return how far apart two workers' outputs are, for each call: the largest max |a - b| / rms b of its tensors.

    It is infinite where one entry is NaN or Inf and the other is not the same, or where integers differ."""
    calls = len(b.outputs)
    worst = torch.zeros(calls, dtype=torch.float64)
    block = BLOCK if b.outputs.device.type == "cpu" else BLOCK << 6
    for part in bench.outputs:
        if part.dtype is None or not part.bytes:
            continue
        at = part.offset - bench.outputs_at
        rows = max(1, block // part.bytes)
        for first in range(0, calls, rows):
            x, y = (w.outputs[first : first + rows, at : at + part.bytes] for w in (a, b))
            worst[first : first + rows] = torch.maximum(worst[first : first + rows], _apart(x, y, part.dtype, block))
    return worst.tolist()


def _apart(x: Tensor, y: Tensor, dtype: torch.dtype, block: int) -> Tensor:
    """Return the same for one tensor of several calls, given as bytes, a row for each call; `block` bytes at a time."""
    floating = dtype.is_floating_point or dtype.is_complex
    rows, size = x.shape
    largest = torch.zeros(rows, dtype=torch.float64)
    squares = torch.zeros(rows, dtype=torch.float64)
    step = max(block // rows // dtype.itemsize, 1) * dtype.itemsize
    for begin in range(0, size, step):
        p, q = (t[:, begin : begin + step].view(dtype) for t in (x, y))
        if not floating:
            largest[(p != q).any(1).cpu()] = math.inf
            continue
        p, q = _single(p), _single(q)
        norm = torch.linalg.vector_norm(q, dim=1).double().cpu()
        apart = torch.linalg.vector_norm(p - q, math.inf, dim=1).double().cpu()
        if not bool(torch.isfinite(norm + apart).all()):  # NaN, Inf, or squares that overflow
            wide = torch.complex128 if dtype.is_complex else torch.float64
            p, q = p.to(wide), q.to(wide)
            same = (p == q) | (torch.isnan(p) & torch.isnan(q))
            apart = torch.where(same, 0.0, (p - q).abs()).amax(1).cpu()
            norm = torch.linalg.vector_norm(torch.where(torch.isfinite(q), q.abs(), 0.0), dim=1).cpu()
        largest = torch.maximum(largest, torch.where(torch.isnan(apart), math.inf, apart))
        squares += norm.square()
    if not floating:
        return largest
    return largest / (squares / (size // dtype.itemsize)).sqrt().clamp_min(1e-30)


def _single(t: Tensor) -> Tensor:
    """Return 16-bit floats as fp32, in which their errors can be told; any other tensor as it is, without a copy."""
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t
