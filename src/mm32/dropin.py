"""The drop-in: takes over torch's own matrix products where mm32 is expected to be at least as fast (on and off: enabling.py).

`DropIn` registers kernels for aten's mm, addmm, bmm and baddbmm, their out= forms, which compiled code calls, and the in-place
addmm_ and baddbmm_, under the dispatcher's CUDA key. That is below autograd, autocast, vmap and fake tensors, so those see the
operators they know. Everything that ends in one of these operators arrives here: torch.matmul, linear layers, einsum, backward
passes, compiled graphs. A call that mm32 does not take goes to the kernel that was registered before, captured with
torch.library.get_kernel. It is called directly, not dispatched again.
"""

from __future__ import annotations

import logging
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from mm32 import dispatch, gemm, prepared, settings, storage, torch_product
from mm32 import plan as planning
from mm32.cuda import cublas
from mm32.errors import CompileError, LaunchError
from mm32.gemm import Gemm

log = logging.getLogger("mm32")

OPERATORS = (
    "mm", "mm.out", "addmm", "addmm.out", "addmm_", "bmm", "bmm.out", "baddbmm", "baddbmm.out", "baddbmm_",
)  # fmt: skip
HOLD = 10.0  # seconds for which kernels are kept alive, at least, after they were unregistered (`DropIn._uninstall`)
# mm32 takes a product only if torch's kernel is estimated to take at least this long. A program of shorter products waits for the
# host, and mm32 keeps the host busy for longer than torch does.
SHORTEST = 13.5e-6  # seconds
# Elements of an operand. If neither operand has more, torch's kernel runs and no form is looked up: the look-up is most of the
# host time of a product that is left to torch. The largest such cube is 128 x 128 x 128. On an H200, mm32 would take none of
# these products without a batch, and 3 in 100 of those with one, which gain 4 us at most. This does not hold for precision
# bf16x6, because torch's product is no substitute for it.
TINY = 16384
_FLOAT32_MAX = torch.finfo(torch.float32).max
_float32 = torch.float32
NOT_FLOAT32, TOO_SMALL = "not float32", "too small: the host takes longer than the card"


@dataclass(frozen=True)
class Stats:
    """Counts of what computed the products of this process while mm32 was on, since the last reset. Calls are counted on the
    host, so replays of a captured CUDA graph are not counted."""

    kernels: dict[str, int]
    """Calls that mm32 ran, by its kernel's name."""
    reasons: dict[str, int]
    """Calls that torch's own kernel ran, by the reason."""
    estimated_seconds_saved: float
    """The sum of the planner's estimates of torch's time less mm32's, in seconds; not measured."""
    tiers: dict[str, int] = field(default_factory=dict)
    """Calls of kernels tensorcore and mma, by what computed the result (docs/numerics.md): "fp16x3", "fp16x3 with a scaled lo",
    "bf16x6" or "FMA"; and in how many of them "tiles recomputed" or "rows recomputed" by FMAs. A call in blocks counts once for
    each block and span. Counted on the card: all calls of the process, not of the drop-in alone, and the replays of CUDA graphs
    among them."""

    @property
    def taken(self) -> int:
        """Calls that mm32 ran."""
        return sum(self.kernels.values())

    @property
    def left(self) -> int:
        """Calls that torch's own kernel ran."""
        return sum(self.reasons.values())

    def __str__(self) -> str:
        lines = [
            f"mm32   {self.taken} calls under mm32.enable(), estimated to have saved {self.estimated_seconds_saved * 1e3:.3g} ms"
        ]
        lines += [f"       {count} {name}" for name, count in sorted(self.kernels.items(), key=lambda x: -x[1])]
        lines += [f"torch  {self.left} calls"]
        lines += [f"       {count} {why}" for why, count in sorted(self.reasons.items(), key=lambda x: -x[1])]
        if not (self.taken or self.left or torch.cuda.is_available()):
            lines.append("       no CUDA device here: products elsewhere are torch's, and not counted")
        if any(self.tiers.values()):
            lines.append("tiers  " + ", ".join(f"{count} {tier}" for tier, count in self.tiers.items() if count))
        return "\n".join(lines)


@dataclass(frozen=True)
class Taken:
    """The decision that mm32 runs a form.

    `kernel`: the name of the kernel. `saved`: the seconds that it is estimated to save. `run`: computes a call, as
    `run(a, b, bias, out)`. `options`: those that it was planned with.
    """

    kernel: str
    saved: float
    run: prepared.Run
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Left:
    """The decision that torch's kernel runs a form. `reason`: why. `for_now`: whether to decide again at the next call."""

    reason: str
    for_now: bool = False


def prepare(problem: Gemm, index: int, replaced: str, passes: int) -> Taken | Left:
    """Decide whether mm32 takes `problem` on CUDA device `index` from torch, whose kernel runs in precision `replaced`. If so,
    mm32's kernels are compiled and loaded on return. `passes`: element-wise passes over the result that follow the product."""
    options: dict[str, Any] = {"torch": replaced, "passes": passes, "drop_in": True}
    try:
        plan = prepared.planned(problem, index, **options)
    except planning.Unplannable as error:
        return Left(str(error))
    if plan.kernel == "torch":
        return Left("torch's kernel is expected to be faster" if plan.estimates else plan.reason)
    if dict(plan.estimates).get("torch", SHORTEST) < SHORTEST:
        return Left(TOO_SMALL)
    if torch.cuda.is_current_stream_capturing():  # loading a module is not allowed there
        return Left("first seen while a CUDA graph was captured: run it once before", for_now=True)
    try:
        run = prepared.executable(plan, index)
    except (CompileError, LaunchError) as error:
        warnings.warn(f"mm32 leaves a product to torch, its kernel could not be made ready: {error}", stacklevel=2)
        return Left(f"mm32's kernel could not be made ready ({type(error).__name__})")
    if run.plan.kernel == "torch":  # mm32's kernels could not be compiled here
        return Left(run.plan.reason)
    return Taken(plan.kernel, prepared.seconds_saved(plan), run, options)


@dataclass
class _Tally:
    calls: int = 0
    saved: float = 0.0

    def read(self, reset: bool) -> tuple[int, float]:
        calls, saved = self.calls, self.saved
        if reset:  # only what was read is subtracted, because other threads go on counting
            self.calls -= calls
            self.saved -= saved
        return calls, saved


class _Choice(prepared.Entry):
    """What was decided for calls of one form.

    `run`: computes a call; None if torch's kernel runs. `shape`: the shape of the result. `strides`: those of the memory that a
    call allocates for its product; None if the product is written to out. `fused`: whether the addend is the bias of mm32's
    epilogue. `spans`: the bytes from the first to the last element of a, b, the addend and out.
    """

    __slots__ = ("fused", "options", "run", "saved", "shape", "spans", "strides", "tally")

    def __init__(
        self,
        tally: _Tally,
        saved: float = 0.0,
        run: prepared.Run | None = None,
        shape: tuple[int, ...] = (),
        strides: tuple[int, ...] | None = None,
        fused: bool = False,
        spans: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        self.tally, self.saved, self.run = tally, saved, run
        self.shape, self.strides, self.fused, self.spans = shape, strides, fused, spans
        self.options: dict[str, Any] = {}  # the options that it was planned with


class _Operation:
    """One of torch's operators, as one DropIn sees it. It is the first field of that DropIn's keys (prepared.Call), so that no
    other DropIn has the same keys.

    `in_place`: whether out is the addend itself. `onto_addend`: the operation of calls in place. For addmm_ it is this operation
    itself; for addmm.out it is another one, to tell such calls apart from calls of the same forms whose out is other memory.
    """

    def __init__(self, name: str, in_place: bool = False) -> None:
        self.name = name
        self.rank = 3 if "bmm" in name else 2
        self.in_place = in_place or name.endswith("_")
        self.onto_addend: _Operation = self if self.in_place else _Operation(name, in_place=True)


def _named(key: tuple, a: torch.Tensor, b: torch.Tensor) -> tuple[str, str]:
    """The operator of a call and its operands' shapes, for the log."""
    return key[0].name, f"{tuple(a.shape)} and {tuple(b.shape)}"


_OTHER = 2  # stands for any scale that is neither 0 nor 1: its value does not decide how a call runs


def _scale(value: Any) -> int | None:
    """Return 0 and 1 as they are, _OTHER for any other number that is finite in float32, and None for what is left to torch."""
    if not isinstance(value, (int, float)) or not abs(value) <= _FLOAT32_MAX:
        return None
    return int(value) if value in (0, 1) else _OTHER


def check_precision(precision: object, function: str, hint: str) -> None:
    """Raise TypeError, which gives the `hint`, for what is neither None nor a name, such as a model or a decorated function, and
    ValueError for an unknown name. `function`: what was called."""
    if precision is None:
        return
    if not isinstance(precision, str):
        raise TypeError(f"{function} takes a precision by name or nothing, got {type(precision).__name__}: {hint}")
    gemm.check_options(None, precision)


class DropIn:
    """mm32's kernels under one dispatch key, and the requests for them. `prepare` decides whether mm32 takes a form; it is not
    called for products of two operands of at most `tiny` elements."""

    def __init__(self, key: str, prepare: Callable[[Gemm, int, str, int], Taken | Left], tiny: int = -1) -> None:
        self._key = key
        self._prepare = prepare
        self._tiny = tiny
        self._lock = threading.Lock()
        self._requests: dict[object, str | None] = {}  # the last one decides the precision
        self._precision: str | None = None
        self._library: torch.library.Library | None = None
        self._installed: list[Any] = []
        self._held: deque[tuple[float, list[Any]]] = deque()
        self._operations = {name: _Operation(name) for name in OPERATORS}
        self._kernels: dict[str, _Tally] = {}
        self._reasons: dict[str, _Tally] = {}
        self._not_float32, self._too_small = (self._tally(self._reasons, why) for why in (NOT_FLOAT32, TOO_SMALL))

    # -----------------------------------------------------------------------------------------------------------------
    # On and off

    def request(self, who: object, precision: str | None) -> None:
        """Turn mm32 on for `who`, or change the precision that `who` asked for."""
        check_precision(
            precision, "mm32.enable", "it turns mm32 on for the whole process; mm32.replace_linear is for one model"
        )
        if (off := settings.disabled()) is not None:
            prepared.say_once(off, "mm32.enable() has no effect, torch's products stay its own: %s")
            return
        settings.read_limit()  # raises now, and not at a product, if the variable's value is wrong
        with self._lock:
            self._requests.pop(who, None)
            self._requests[who] = precision
            self._update()

    def withdraw(self, who: object) -> None:
        with self._lock:
            self._requests.pop(who, None)
            self._update()

    def withdraw_all(self) -> None:
        with self._lock:
            self._requests.clear()
            self._update()

    @property
    def on(self) -> bool:
        return len(self._requests) > 0  # not bool(...): compiled code would not look at it again

    def words(self) -> str:
        if not self.on:
            return "off"
        return "on" if self._precision is None else f"on with precision {self._precision!r}"

    def _update(self) -> None:
        if not self._requests:
            if self._library is not None:
                self._uninstall()
            return
        self._precision = next(reversed(self._requests.values()))
        # A torch built without CUDA has nothing to take over.
        if self._library is None and torch._C._dispatch_has_kernel_for_dispatch_key("aten::mm", self._key):
            self._library = self._install()

    def _install(self) -> torch.library.Library:
        cublas.taken_over |= self._key == "CUDA"
        library = torch.library.Library("aten", "IMPL")
        makers = {
            "mm": self._mm, "addmm": self._addmm, "addmm_": self._addmm_in_place,
            "bmm": self._mm, "baddbmm": self._addmm, "baddbmm_": self._addmm_in_place,
        }  # fmt: skip
        with warnings.catch_warnings():
            # torch warns, once a process, that a kernel is overridden: this is intended.
            warnings.filterwarnings("ignore", message="Warning only once for all operators")
            for operator in OPERATORS:
                before = torch.library.get_kernel(f"aten::{operator}", self._key)
                kernel = makers[operator.removesuffix(".out")](self._operations[operator], before.call_boxed)
                # Without allow_override, torch 2.9 would raise if another library has already taken over an operator.
                library.impl(operator, kernel, self._key, with_keyset=True, allow_override=True)
                self._installed.append(torch.library.get_kernel(f"aten::{operator}", self._key))
        return library

    def _uninstall(self) -> None:
        self._library = None  # this removes the registrations
        cublas.taken_over &= self._key != "CUDA"
        # A thread may be waiting for the GIL inside a kernel that is no longer registered, and torch does not keep that kernel
        # alive. Without this, three threads that multiply crash within seconds of switching on and off.
        now = time.monotonic()
        self._held.append((now, self._installed))
        self._installed = []
        while now - self._held[0][0] > HOLD:
            self._held.popleft()

    # The kernels. The dispatcher leaves out arguments that have their default; the earlier kernel gets the same arguments.

    def _mm(self, operation: _Operation, before: Callable) -> Callable:
        run = self._run

        def kernel(keys: Any, a: torch.Tensor, b: torch.Tensor, **options: Any) -> torch.Tensor:
            result = run(operation, None, a, b, 0, 1, options.get("out"))
            return before(keys, a, b, **options) if result is None else result

        return kernel

    def _addmm(self, operation: _Operation, before: Callable) -> Callable:
        run = self._run

        def kernel(keys: Any, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **options: Any) -> torch.Tensor:
            result = run(operation, c, a, b, options.get("beta", 1), options.get("alpha", 1), options.get("out"))
            return before(keys, c, a, b, **options) if result is None else result

        return kernel

    def _addmm_in_place(self, operation: _Operation, before: Callable) -> Callable:
        run = self._run

        def kernel(keys: Any, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **options: Any) -> torch.Tensor:
            result = run(operation, c, a, b, options.get("beta", 1), options.get("alpha", 1), c)
            return before(keys, c, a, b, **options) if result is None else result

        return kernel

    # -----------------------------------------------------------------------------------------------------------------
    # One call

    def _run(
        self,
        operation: _Operation,
        addend: torch.Tensor | None,
        a: torch.Tensor,
        b: torch.Tensor,
        beta: Any,
        alpha: Any,
        out: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """Return mm32's result, or None if the kernel that was registered before has to run."""
        # As for a kernel in C++, subclasses and modes must see the operator only, not what is called here.
        with torch._C.DisableTorchFunction():
            # These checks come before the look-up, for programs in bfloat16 or float64 and for programs of thousands of tiny
            # products. On a CPU such a call takes 2.5 us more than torch's, 1.5 us of which is the dispatcher's call of Python.
            # With a look-up it would take 4.6 us more.
            if a.dtype is not _float32:
                self._not_float32.calls += 1
                return None
            if a.numel() <= self._tiny and b.numel() <= self._tiny and self._precision != "bf16x6":
                self._too_small.calls += 1
                return None
            addend_form = None if addend is None else prepared.form(addend)
            out_form = None
            if out is not None:
                out_form = addend_form if out is addend else prepared.form(out)
                if addend is not None and out_form == addend_form and out.data_ptr() == addend.data_ptr():
                    operation = operation.onto_addend
            key = (
                operation, prepared.form(a), prepared.form(b), addend_form, out_form, None, self._precision, "auto",
                None, None, torch_product.torch_precision(), (_scale(beta), _scale(alpha)),
            )  # fmt: skip
            choice = prepared.CACHE.find(key)
            if choice is None:
                choice = self._decide(key, addend, a, b, out)
            if choice.run is None:
                choice.tally.calls += 1
                return None
            # This depends on addresses, so the form does not decide it.
            if out is not None and self._shared(choice.spans, None if operation.in_place else addend, a, b, out):
                self._tally(self._reasons, "out shares memory with an input").calls += 1
                return None
            if choice.strides is None:
                assert out is not None
                product = out
            else:
                try:
                    product = dispatch.empty(a, choice.shape, choice.strides)
                except torch.OutOfMemoryError:
                    if out is None:  # torch would need as much
                        raise
                    self._no_memory("for a product that is added in place", key, a, b)
                    return None
            bias = addend if choice.fused else None
            try:
                choice.run(a, b, bias, product)
            except torch.OutOfMemoryError:  # no memory for the workspace: nothing was launched
                less = prepared.in_blocks(choice.run, a.get_device(), (a, b, bias, product), **choice.options)
                if less is None:
                    self._no_memory("for mm32's workspace", key, a, b)
                    return None
                choice.run = less
            result = product if out is None else out
            if addend is not None and not choice.fused:
                _add(result, addend, product, beta, alpha)
        choice.tally.calls += 1
        choice.tally.saved += choice.saved
        return result

    def _no_memory(self, what: str, key: tuple, a: torch.Tensor, b: torch.Tensor) -> None:
        log.info("%s of %s is left to torch: no memory %s", *_named(key, a, b), what)
        self._tally(self._reasons, f"no memory {what}").calls += 1

    @staticmethod
    def _shared(
        spans: tuple[int, ...], addend: torch.Tensor | None, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor
    ) -> bool:
        low = out.data_ptr()
        high = low + spans[3]
        for t, span in ((a, spans[0]), (b, spans[1]), (addend, spans[2])):
            if t is not None and t.data_ptr() < high and low < t.data_ptr() + span and storage.overlap(out, t):
                return True
        return False

    def _decide(
        self, key: tuple, addend: torch.Tensor | None, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None
    ) -> _Choice:
        since = prepared.CACHE.generation
        found, shape, strides, fused = self._ask(prepared.Call.of(key), addend, a, b, out)
        if isinstance(found, Left):
            choice = _Choice(self._tally(self._reasons, found.reason))
            log.info("%s of %s is left to torch: %s", *_named(key, a, b), found.reason)
            if found.for_now:
                return choice
        else:
            spans = storage.spans(a, b, addend, out)
            tally = self._tally(self._kernels, found.kernel)
            choice = _Choice(tally, found.saved, found.run, shape, strides, fused, spans)
            choice.options = found.options
        prepared.CACHE.keep(key, choice, since)
        return choice

    def _ask(
        self,
        call: prepared.Call,
        addend: torch.Tensor | None,
        a: torch.Tensor,
        b: torch.Tensor,
        out: torch.Tensor | None,
    ) -> tuple[Taken | Left, tuple[int, ...], tuple[int, ...] | None, bool]:
        """Return the decision, the result's shape, the strides of memory for the product (None: it is written to out), and
        whether the addend is a bias that the kernel adds."""
        assert isinstance(call.operation, _Operation)
        assert call.torch is not None
        rank, in_place = call.operation.rank, call.operation.in_place
        tensors: list[Any] = [t for t in (a, b, addend, out) if t is not None]

        def left(reason: str) -> tuple[Left, tuple[int, ...], None, bool]:
            return Left(reason), (), None, False

        if any(t.dtype != torch.float32 for t in tensors):
            return left(NOT_FLOAT32)
        if any(t.get_device() != a.get_device() for t in tensors):
            return left("tensors on several devices")
        fits = a.dim() == b.dim() == rank and a.shape[-1] == b.shape[-2] and a.shape[:-2] == b.shape[:-2]
        if not fits:
            return left("shapes that do not fit: torch's error")
        shape = (*a.shape[:-1], b.shape[-1])
        if 0 in shape or a.shape[-1] == 0:
            return left("empty")
        passes, bias = 0, None
        if addend is not None:
            beta, alpha = call.scales
            if beta is None or alpha is None:
                return left("alpha or beta is not a finite real number")
            if alpha == 0:
                return left("alpha is 0")
            if addend.dim() > rank or any(
                x not in (1, y) for x, y in zip(reversed(addend.shape), reversed(shape), strict=False)
            ):
                return left("shapes that do not fit: torch's error")
            wide = addend.expand(shape)
            is_bias = all(n == 1 or st == 0 for n, st in zip(shape[:-1], wide.stride()[:-1], strict=True))
            # Not for calls in place: kernels that compute a tile a second time read the bias again.
            if alpha == beta == 1 and is_bias and not in_place:
                bias = wide.flatten(0, -2)[0] if rank == 2 else wide[0, 0]
            if bias is None:
                passes = (alpha == _OTHER and beta == _OTHER) + (alpha == _OTHER or beta != 0)  # those of `_add`
        if out is not None:
            if tuple(out.shape) != shape:
                if call.operation.name.endswith("_"):
                    return left("shapes that do not fit: torch's error")
                return left("out of another shape: torch resizes it")
            if storage.self_overlapping(out.shape, out.stride()):
                return left("out refers to one element more than once")
        strides, target = None, out
        if target is None or (in_place and call.scales[0] != 0):
            strides = storage.new_strides(shape, target)
            target = a.new_empty_strided(shape, strides, device="meta")
        precision = call.torch if call.precision is None else call.precision
        problem = gemm.describe(a, b, bias, target, None, precision)
        found = self._prepare(problem, a.get_device(), call.torch, passes)
        return found, shape, strides, bias is not None

    # -----------------------------------------------------------------------------------------------------------------
    # Counting

    def _tally(self, where: dict[str, _Tally], name: str) -> _Tally:
        return where.get(name) or where.setdefault(name, _Tally())

    def stats(self, reset: bool = False) -> Stats:
        kernels, reasons = (
            {name: tally.read(reset) for name, tally in list(tallies.items())}
            for tallies in (self._kernels, self._reasons)
        )
        return Stats(
            {name: calls for name, (calls, _) in kernels.items() if calls},
            {why: calls for why, (calls, _) in reasons.items() if calls},
            sum(saved for _, saved in kernels.values()),
        )


def _add(result: torch.Tensor, addend: torch.Tensor, product: torch.Tensor, beta: Any, alpha: Any) -> None:
    """Compute result = beta * addend + alpha * product. `result` is the memory of the product or of the addend; with beta = 0 it
    is the product's, and the addend is not read.

    This takes one pass over the result at most, or two if alpha is not 1 and beta neither 0 nor 1. `lerp` would need only one
    where alpha is 1 - beta, but turns an infinite addend into NaN.
    """
    beta, alpha = +beta, +alpha  # makes numbers of booleans, which torch's products take and torch.add does not
    if beta == 0:
        if alpha != 1:
            product.mul_(alpha)
    elif beta == 1:
        torch.add(addend, product, alpha=alpha, out=result)
    else:
        if alpha != 1:
            product.mul_(alpha)
        torch.add(product, addend, alpha=beta, out=result)
