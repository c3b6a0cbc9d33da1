"""The fast path for a call that is like an earlier one: a look-up by shapes and options, one guard in C++, one launch.

What runs a call of a new form (prepared.py) is kept here with a guard of its tensors (dispatch.guard). If the guard passes for
the tensors of a later call, the dispatcher would treat them as it did those. The form is then the same too, except for
addresses, which are checked here; so nothing else has to be checked. All other calls take the slow path: by the key of the
call's form, or by the dispatcher. On a CPU the fast path takes 3 us besides the launch, and the slow path 8 us.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad, profiler

from mm32 import dispatch, prepared, storage
from mm32.cuda import cublas, launch
from mm32.cuda.cublas import TorchProduct
from mm32.cuda.launch import Executable
from mm32.packed import PackedOperand

MAX_STATES = 8  # the most states of one key, which differ in strides, classes, inference mode, autocast, ...

_TENSOR_TYPES = dispatch.TENSOR_TYPES
_is_compiling, _is_grad_enabled = torch.compiler.is_dynamo_compiling, torch.is_grad_enabled
_function_modes, _tracing = torch._C._len_torch_function_stack, torch._C._get_tracing_state
_float32 = torch.float32


class Seen:
    """An earlier call: the guard of its tensors, and what runs it."""

    __slots__ = (
        "empty",
        "guard",
        "index",
        "launch",
        "product",
        "run",
        "shape",
        "spans",
        "strides",
        "tracked",
        "versions",
    )

    def __init__(
        self, guard: Callable[..., bool], shape: tuple[int, ...], run: Executable | TorchProduct, like: torch.Tensor
    ) -> None:
        self.guard, self.index = guard, like.get_device()
        self.empty = dispatch.EMPTY[like.device.type]
        self.run = run
        self.launch = run.launch if isinstance(run, Executable) else None
        self.product: Callable[..., torch.Tensor] | None = None  # torch's own operator, on a, b and bias
        self.shape, self.strides = shape, storage.contiguous_strides(shape)
        self.spans: tuple[int, ...] = ()  # bytes that a, b, bias and out reach over, if out is given
        self.versions = False  # whether torch counts the changes of out
        self.tracked = False  # whether a gradient is recorded, unless that is turned off


def _offered(kernel: Any) -> str | None:
    """The precision of torch's own product, if "auto" may choose that product now."""
    return cublas.offered() if kernel == "auto" else None


def learn(
    found: prepared.Prepared,
    a: torch.Tensor,
    b: torch.Tensor | PackedOperand,
    bias: torch.Tensor | None,
    out: torch.Tensor | None,
    options: tuple[Any, ...],
    transposed: bool,
) -> None:
    """Keep what runs a call. To be called after the call has run, if `dispatch.implementation` let it bypass the dispatcher.

    `options`: activation, precision and kernel. `transposed`: whether b is the transpose of the second operand.
    """
    run = found.run
    if not isinstance(run, Executable | TorchProduct):
        return
    if isinstance(b, PackedOperand):
        second: tuple[Any, ...] = (b.form, b.memory_form)
        b, given = b.source, (a, bias, out)
    else:
        second, given = b.shape, (a, b, bias, out)  # type: ignore[assignment]
    tensors = tuple(t for t in given if t is not None)
    if b.data_ptr() & 15 or any(t.data_ptr() & 15 for t in tensors):
        return
    seen = prepared.CACHE.seen
    states = seen.setdefault(
        (a.shape, second, bias is None, out is None, *options, transposed, _offered(options[2])), []
    )
    if len(states) >= MAX_STATES or any(each.guard(*tensors) for each in states):
        return
    if (guard := dispatch.guard(tensors)) is None or not guard(*tensors):
        return
    made = Seen(guard, tuple(found.shape), run, a)
    made.tracked = any(t.requires_grad for t in tensors)
    if out is not None:
        made.versions = not out.is_inference()
        made.spans = storage.spans(a, b, bias, out)
    elif isinstance(run, TorchProduct):
        made.product = run.anew(a, b, made.shape, transposed)
    if found.made == prepared.CACHE.generation:  # else the cache was cleared meanwhile, with or without `states`
        states.append(made)


def run(
    a: Any,
    b: Any,
    bias: Any,
    out: Any,
    activation: Any,
    precision: Any,
    kernel: Any,
    transposed: bool = False,
) -> torch.Tensor | None:
    """Return the result, or None if the call has to take the slow path: then nothing has been done."""
    if (
        _is_compiling()
        or _function_modes() > 0
        or forward_ad._current_level >= 0
        or profiler._is_profiler_enabled
        or _tracing() is not None  # a shape may then raise an error of torch.jit.trace, which must reach the caller
        or type(a) not in _TENSOR_TYPES
    ):
        return None
    memory: torch.Tensor | None = None
    tensors: tuple[Any, ...]
    try:
        if type(b) in _TENSOR_TYPES:
            second = b.shape
            tensors = (a, b) if bias is None else (a, b, bias)
        elif type(b) is PackedOperand and b.serves("right", precision, kernel):
            second = b.form, b.memory_form
            memory, b = b.memory, b.source
            tensors = (a,) if bias is None else (a, bias)
        else:
            return None
        states = prepared.CACHE.seen.get(
            (a.shape, second, bias is None, out is None, activation, precision, kernel, transposed, _offered(kernel))
        )
    except (TypeError, RuntimeError):  # an option that cannot be hashed; a nested tensor, which has no shape
        return None
    if states is None:
        return None
    if out is not None:
        tensors += (out,)
    for seen in states:
        if seen.guard(*tensors):
            break
    else:
        return None
    if seen.tracked and _is_grad_enabled():
        return None
    at_a, at_b, at_bias = a.data_ptr(), b.data_ptr(), 0 if bias is None else bias.data_ptr()
    try:
        if (at_a | at_b | at_bias) & 15 or launch.current_device() != seen.index:
            return None
    except RuntimeError:  # CUDA does not work here, as in a forked process: the slow path raises torch's error
        return None
    if seen.product is not None:
        return seen.product(a, b, bias)
    if out is None:
        out = seen.empty(seen.shape, seen.strides, _float32)
        at_out = out.data_ptr()
    else:
        at_out = out.data_ptr()
        if at_out & 15 or _meet(seen.spans, at_a, at_b, at_bias, at_out):
            return None
        if seen.versions:
            torch.autograd.graph.increment_version(out)
    try:
        if seen.launch is not None:
            seen.launch(at_a, at_b, at_bias, at_out, None, memory)
        else:
            seen.run(a, b.mT if transposed and b.dim() > 1 else b, bias, out)
    except torch.OutOfMemoryError:  # no memory for the workspace: nothing was launched
        return None
    return out


def _meet(spans: tuple[int, ...], *addresses: int) -> bool:
    """Return whether the memory of out, whose span and address come last, meets an input's: first to last byte of each."""
    out, end = addresses[-1], addresses[-1] + spans[-1]
    return any(start < end and out < start + span for start, span in zip(addresses[:-1], spans, strict=False))
