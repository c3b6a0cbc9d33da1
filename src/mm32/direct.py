"""The way past torch's dispatcher, which calls Python twice, for autograd and for the device, and takes about as long as the
launch: where it would do nothing else, `mm32.matmul` calls the implementation straight away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

_include_set, _keys = torch._C._dispatch_tls_local_include_set, torch._C._dispatch_keys


def _quiet() -> list[int]:
    """What the dispatcher includes for a thread without dispatch modes, transforms and tracing, outside and inside inference
    mode."""
    included = []
    for inference in (False, True):
        with _disable_current_modes(), torch.inference_mode(inference):
            included.append(_include_set().raw_repr())
    return included


_QUIET = _quiet()
_TYPES = (torch.Tensor, torch.nn.Parameter)
_implementations: dict[int, Callable[..., torch.Tensor]] = {}


def learn(device: torch.device | str, run: Callable[..., torch.Tensor]) -> None:
    """`run` is what the dispatcher calls for ordinary tensors of a device: those with the dispatch keys of a new one, made
    outside or inside inference mode; no subclass, no wrapper of torch.func, not fake, not negated lazily."""
    for inference in (False, True):
        with _disable_current_modes(), torch.inference_mode(inference):
            _implementations[_keys(torch.empty(0, device=device)).raw_repr()] = run


def observed() -> bool:
    """Whether a dispatch mode, a transform of torch.func or a tracer sees the operators that this thread calls."""
    return _include_set().raw_repr() not in _QUIET


def implementation(
    a: Any, b: Any, bias: torch.Tensor | None, out: torch.Tensor | None
) -> Callable[..., torch.Tensor] | None:
    """The implementation for these operands, if the dispatcher would call it and do nothing more; else None."""
    if (
        torch.compiler.is_dynamo_compiling()
        or observed()
        or torch._C._len_torch_function_stack() > 0
        or torch.autograd.forward_ad._current_level >= 0
        or torch.autograd.profiler._is_profiler_enabled
        or type(a) not in _TYPES
        or type(b) not in _TYPES
    ):
        return None
    run = _implementations.get(_keys(a).raw_repr())
    recorded = torch.is_grad_enabled()
    if recorded and a.requires_grad:
        return None
    for t in (b, bias, out):
        if t is not None and (
            type(t) not in _TYPES
            or _implementations.get(_keys(t).raw_repr()) is not run
            or (recorded and t.requires_grad)
        ):
            return None
    return run
