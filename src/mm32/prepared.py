"""Find what runs a call by the call's form: it is planned, compiled and loaded once, and cached for later calls of the same form.

The operators, `mm32.pack` and the drop-in all use this module. A call of a form that was seen before takes one look-up by its
`Call`. Any other call is checked by its caller, and then planned, compiled and loaded here.
"""

from __future__ import annotations

import logging
import threading
import time
import warnings
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import torch

from mm32 import plan as planning
from mm32 import settings
from mm32.cuda import blocks, cublas, launch, prebuilt
from mm32.cuda import compile as compiler
from mm32.errors import CompileError, LaunchError
from mm32.gemm import Gemm

log = logging.getLogger("mm32")

MAX_CALLS = 4096  # the most forms that are kept


class Run(Protocol):
    """What computes a call: a `launch.Executable`, or torch's product in its place."""

    plan: planning.Plan

    def __call__(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        packed_a: torch.Tensor | None = None,
        packed_b: torch.Tensor | None = None,
        /,
    ) -> None: ...


# ---------------------------------------------------------------------------------------------------------------------
# The form of a call, and what is kept by it


class Form(NamedTuple):
    """The properties of a tensor that a plan depends on."""

    shape: torch.Size
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: int  # index; -1 on the CPU
    offset: int  # bytes of the first element beyond a multiple of 16


class Call(NamedTuple):
    """Everything that decides how a call runs: the key of the cache.

    A call builds plain tuples in the order of these fields, which compare and hash as a `Call` does; only if the key is not found
    does `Call.of` give the fields their names. For two operands, building the tuples takes 1.2 us on a CPU. A Call of two Forms
    takes 3.1 us, and frozen dataclasses with slots take 7.2 us.
    """

    operation: object  # "matmul", "pack", or one of the drop-in's own operations
    a: Form | None
    b: Form | None
    addend: Form | None  # the bias, or the drop-in's addend
    out: Form | None
    activation: str | None
    precision: str | None  # None: the precision of torch's own product
    kernel: str
    packed_a: Form | None  # the memory of a prepacked operand
    packed_b: Form | None
    torch: str | None  # the precision of torch's own product, if that may be chosen
    scales: tuple[int | None, int | None]  # beta and alpha of the drop-in (dropin._scale)

    @classmethod
    def of(cls, key: tuple) -> Call:
        """The same key as a `Call`, whose fields have names."""
        call = cls(*key)
        forms: dict[str, Any] = {
            name: value and Form(*value) for name, value in call._asdict().items() if name in _FORMS
        }
        return call._replace(**forms)


_FORMS = ("a", "b", "addend", "out", "packed_a", "packed_b")
NO_SCALES = (1, 1)


def form(t: torch.Tensor) -> tuple:
    """The fields of a tensor's `Form`."""
    return t.shape, t.stride(), t.dtype, t.get_device(), t.data_ptr() % 16


class Entry:
    """What is kept for a form. `used` is set whenever the entry is found again."""

    __slots__ = ("made", "used")

    def __init__(self) -> None:
        self.used = False
        self.made = -1  # the generation of the cache that keeps it


class Prepared(Entry):
    """A form that is ready to run: the result's shape, and what computes it (None: there is nothing to compute)."""

    __slots__ = ("run", "shape")

    def __init__(self, shape: list[int], run: Run | None) -> None:
        super().__init__()
        self.shape = shape
        self.run = run


class Cache:
    """A cache of at most `most` entries. A new entry replaces one that was not used lately (second-chance algorithm, or "clock").

    Finding an entry, which every call does, takes no lock and moves nothing. Any thread may find and keep entries at any time.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.generation = 0  # rises when the cache is cleared: earlier plans may no longer hold
        self.seen: dict[tuple, list[Any]] = {}  # for fast_path.py; cleared when an entry is dropped
        self._entries: dict[tuple, Any] = {}
        self._lock = threading.Lock()

    def find(self, key: tuple) -> Any:
        """The entry that was kept under `key`, or None. Raises TypeError if the key cannot be hashed."""
        found = self._entries.get(key)
        if found is not None:
            found.used = True
        return found

    def keep(self, key: tuple, entry: Entry, since: int | None = None) -> None:
        """Keep an entry under `key`. `since`: the generation of the cache when planning the entry began; if the cache was cleared
        since then, the entry is not kept."""
        with self._lock:
            if since is not None and since != self.generation:
                return
            entry.made = self.generation
            while len(self._entries) >= self.most:
                oldest = next(iter(self._entries))
                candidate = self._entries.pop(oldest)
                if candidate.used:  # used since it was last looked at: it goes to the end of the queue
                    candidate.used = False
                    self._entries[oldest] = candidate
                self.seen.clear()  # the fast path uses entries without finding them here
            self._entries[key] = entry

    def clear(self) -> None:
        with self._lock:
            self.generation += 1
            self.seen.clear()
            self._entries.clear()

    def forget_fast_paths(self) -> None:
        """Make calls take the slow path once more, where they find what an entry says now."""
        with self._lock:
            self.seen.clear()

    def __len__(self) -> int:
        return len(self._entries)


CACHE = Cache(MAX_CALLS)


# ---------------------------------------------------------------------------------------------------------------------
# Planning


def seconds_saved(plan: planning.Plan) -> float:
    """The seconds that the plan's kernel is estimated to save over torch's own product; 0 if the two were not compared."""
    estimates = dict(plan.estimates)
    return estimates["torch"] - estimates[plan.kernel] if "torch" in estimates else 0.0


_missing: str | None = None  # what no kernel can be compiled or launched without, once it was found missing
_said: set[str] = set()


def unavailable(index: int) -> str | None:
    """Return why none of mm32's kernels runs on CUDA device `index` in this process, or None."""
    if (off := settings.disabled()) is not None:
        return off
    if torch.version.hip is not None:
        return "mm32's kernels are for NVIDIA GPUs, and this torch is built for AMD's (ROCm)"
    return planning.unsupported("simt", launch.card_of(index)) or _missing


def say_once(reason: str, line: str = "mm32 leaves its products to torch, in fp32: %s") -> None:
    """Write to the log "mm32", once in a process, that torch computes in mm32's place."""
    if (said := line % reason) not in _said:
        _said.add(said)
        log.warning("%s", said)


def planned(
    problem: Gemm,
    index: int,
    kernel: str = "auto",
    prepacked: tuple[bool, bool] = (False, False),
    torch: str | None = None,
    passes: int = 0,
    drop_in: bool = False,
    less: int | None = None,
) -> planning.Plan:
    """Return `planning.plan` for CUDA device `index`, with a workspace within the user's limit, or within `less` bytes.

    If none of mm32's kernels runs there, "auto" gives a plan of kernel "torch" that says why, even if torch's own product was not
    offered (`torch`).

    Raises ValueError for an unknown kernel, `Unplannable` if a kernel asked for by name cannot run.
    """
    planning.check_kernel(kernel)
    why = unavailable(index)
    if why is None or (why == _missing and kernel != "auto"):  # the attempt to compile it will say what is missing
        card, limit = launch.card_of(index), settings.read_limit() if less is None else less
        return planning.plan(problem, card, kernel, prepacked, torch=torch, passes=passes, drop_in=drop_in, limit=limit)
    if kernel != "auto":
        if why == settings.disabled():
            why += ": unset it, or ask for kernel 'auto', which is torch's product then"
        raise planning.Unplannable(f"kernel {kernel!r} cannot run here: {why}")
    return _by_torch(problem, index, why)


def _by_torch(problem: Gemm, index: int, why: str) -> planning.Plan:
    return planning.Plan(problem, launch.card_of(index), "torch", (), why)


# ---------------------------------------------------------------------------------------------------------------------
# Making ready


def executable(plan: planning.Plan, index: int, kernel: str = "auto") -> Run:
    """Return what runs a plan on CUDA device `index`, with its kernels compiled and loaded.

    If NVRTC or the packages that call it are missing, "auto" is left to torch, in fp32.

    Raises `CompileError` or `LaunchError`; `CompileError` also if NVRTC or these packages are missing for a kernel asked for by
    name.
    """
    global _missing
    _log(plan, index)
    if plan.kernel == "torch":
        if not plan.estimates:  # there was nothing to choose
            say_once(plan.reason)
        return cublas.TorchProduct(plan)
    try:
        return blocks.executable(plan, index)
    except Exception as error:
        missing = _what_is_missing(error)
        if missing is None:
            raise
        if kernel != "auto":
            raise error if isinstance(error, CompileError) else CompileError(f"{missing} ({error})") from error
        if not prebuilt.there():  # kernels that came with the package need no compiler: other forms may run
            _missing = missing
        return executable(_by_torch(plan.gemm, index, missing), index)


def _log(plan: planning.Plan, index: int) -> None:
    g = plan.gemm
    log.info(
        "M=%s N=%s K=%s%s, layout %s, precision %s on cuda:%s: kernel %s (%s)",
        *(
            g.m,
            g.n,
            g.k,
            f" batch {g.batches}" if g.batch else "",
            g.layout,
            g.precision,
            index,
            plan.kernel,
            plan.reason,
        ),
    )
    if log.isEnabledFor(logging.DEBUG):
        log.debug("%s", plan.explain())


def _what_is_missing(error: BaseException | None) -> str | None:
    """Return what to install, if an error comes from missing NVRTC, driver bindings or their libraries; else None."""
    while error is not None:
        if isinstance(error, ImportError) or type(error).__name__ == "DynamicLibNotFoundError":  # of cuda-pathfinder
            return f"its kernels need cuda-core with NVRTC: {compiler.INSTALL}"
        error = error.__cause__
    return None


LEAST_LIMIT = 64 << 20  # bytes: with a smaller workspace, blocks hardly pay
# When blocks found no memory either. Each try makes new plans, and makes torch's allocator search for memory several times.
_out_of_memory_at: WeakKeyDictionary[Run, float] = WeakKeyDictionary()
AGAIN = 10.0  # seconds until blocks are tried again


def in_blocks(
    run: Run,
    index: int,
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor],
    kernel: str = "auto",
    **options: Any,
) -> Run | None:
    """Compute a call, `run(*tensors)`, that found no memory for its workspace, in blocks with half of that memory, a quarter, and
    so on down to LEAST_LIMIT. Returns what computed it, and warns.

    Returns None, with nothing done, if nothing fits or the kernels cannot be loaded, for AGAIN seconds after that, for kernels
    that are not emulated ones, and while a CUDA graph is captured, when kernels must not be loaded. `options` are those of
    `planned`.
    """
    plan = run.plan
    if plan.kernel not in planning.EMULATED_KERNELS or plan.workspace is None:
        return None
    if tensors[0].is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    if time.monotonic() - _out_of_memory_at.get(run, -AGAIN) < AGAIN:
        return None
    limit = plan.workspace.bytes
    while (limit := limit // 2) >= LEAST_LIMIT:
        try:
            less = planned(plan.gemm, index, kernel, less=limit, **options)
        except planning.Unplannable:
            return None
        if less.kernel != plan.kernel or less.workspace is None:  # with so little memory, another kernel is faster
            break
        limit = less.workspace.bytes
        try:
            made = executable(less, index, kernel)
            if made.plan.kernel != less.kernel:  # torch's own product, where blocks cannot be compiled
                break
            made(*tensors)
        except torch.OutOfMemoryError:
            continue
        except (CompileError, LaunchError):  # loading a module finds no memory either
            break
        warnings.warn(
            f"mm32: no memory for {plan.workspace.bytes} bytes of workspace that kernel {plan.kernel!r} wants for a product; "
            f"such products are computed in blocks with {limit} bytes from now on",
            stacklevel=4,
        )
        return made
    _out_of_memory_at[run] = time.monotonic()
    return None


def without_memory(run: Run, index: int, kernel: str, error: torch.OutOfMemoryError) -> Run:
    """Return what computes a call in place of `run`, which found no memory for its workspace (`error`), even in blocks.

    For "auto" and "simt" it is a kernel without a workspace, which is slower, and a warning says so. For another kernel asked for
    by name, the error is raised again.
    """
    plan = run.plan
    if kernel not in ("auto", "simt") or plan.workspace is None:
        raise error
    instead = planning.without_workspace(plan.gemm, plan.card, kernel)
    warnings.warn(
        f"mm32.matmul: no memory for {plan.workspace.bytes} bytes of workspace that kernel {plan.kernel!r} wants; kernel "
        f"{instead.kernel!r} without it, which is slower, runs instead",
        stacklevel=4,
    )
    return launch.Executable(instead, index)
