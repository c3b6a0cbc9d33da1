"""When a call may bypass torch's dispatcher.

The dispatcher calls Python twice on its way to an implementation, for autograd and for the device, which takes about as long as
the launch. If it would do nothing else, `mm32.matmul` calls the implementation itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad, profiler
from torch.utils._python_dispatch import _disable_current_modes

_include_set, _keys = torch._C._dispatch_tls_local_include_set, torch._C._dispatch_keys
_is_compiling, _is_grad_enabled = torch.compiler.is_dynamo_compiling, torch.is_grad_enabled
_function_modes = torch._C._len_torch_function_stack

Implementation = Callable[..., torch.Tensor]
_compiled: Any = torch._C._dynamo.guards  # functions that compiled programs call; not part of torch's public interface


def _quiet() -> list[int]:
    """The dispatch keys that a thread includes when there is no dispatch mode, transform or tracer: outside inference mode, and
    inside it."""
    included = []
    for inference in (False, True):
        with _disable_current_modes(), torch.inference_mode(inference):
            included.append(_include_set().raw_repr())
    return included


_QUIET = _quiet()
TENSOR_TYPES = (torch.Tensor, torch.nn.Parameter)
_implementations: dict[int, Implementation] = {}


def learn(device: torch.device | str, run: Implementation) -> None:
    """Declare that `run` is what the dispatcher calls for ordinary tensors of a device.

    Ordinary tensors have the dispatch keys of a new tensor, made outside or inside inference mode: they are no subclass, no
    wrapper of torch.func, not fake, and not lazily negated.
    """
    for inference in (False, True):
        with _disable_current_modes(), torch.inference_mode(inference):
            _implementations[_keys(torch.empty(0, device=device)).raw_repr()] = run


def observed() -> bool:
    """Return whether a dispatch mode, a transform of torch.func or a tracer sees the operators that this thread calls."""
    return _include_set().raw_repr() not in _QUIET


def keys(t: Any) -> int:
    """The dispatch keys of a tensor. They are 0, for which there is no implementation, for a subclass and for anything else."""
    return _keys(t).raw_repr() if type(t) in TENSOR_TYPES else 0


def implementation(
    tensors: tuple[Any, ...], known: tuple[int, ...] = (), gradients: bool = False
) -> Implementation | None:
    """The implementation for these tensors, if the dispatcher would call it and do nothing more; else None.

    `known` are the `keys` of further tensors, for which no gradient is recorded. `gradients`: the caller records gradients
    itself.
    """
    if (
        _is_compiling()
        or _include_set().raw_repr() not in _QUIET
        or _function_modes() > 0
        or forward_ad._current_level >= 0
        or profiler._is_profiler_enabled
    ):
        return None
    recorded, run = _is_grad_enabled() and not gradients, None
    for t in tensors:
        if type(t) not in TENSOR_TYPES or (recorded and t.requires_grad):
            return None
        found = _implementations.get(_keys(t).raw_repr())
        if found is None or (found is not run and run is not None):
            return None
        run = found
    for each in known:
        if _implementations.get(each) is not run:
            return None
    return run


def guard(tensors: tuple[torch.Tensor, ...]) -> Callable[..., bool] | None:
    """Return a check, in C++ and 0.2 us, of whether the dispatcher would treat other tensors as it treats `tensors` now.

    The check compares classes, dispatch keys (with those that this thread includes and excludes: modes, transforms, tracers,
    autocast, inference mode), dtypes, devices, sizes, strides, and whether gradients are required. It does not see the other
    things that `implementation` checks: compilation by dynamo, function modes, forward mode, a profiler, whether gradients are
    recorded.

    The check is torch.compile's TensorGuards, and keeps no tensor alive. Returns None if this torch has no TensorGuards, or if a
    tensor is given twice, which they cannot check.
    """
    if _Guards is None or len({id(t) for t in tensors}) < len(tensors):
        return None
    return _Guards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check


def _guards() -> Any:
    """torch's class of guards, if it exists and checks what `guard` says it does."""
    try:
        made = _compiled.TensorGuards
        with _disable_current_modes(), torch.inference_mode(False):
            a, b = (torch.empty(size, device="cpu") for size in ((2, 3), (3, 2)))
            check = made(a, b, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
            others = (b.double(), b.to("meta"), a.clone().T, b[:2], torch._neg_view(b), b.clone().requires_grad_())
            with torch.inference_mode():
                inside = check(a, b)
            works = check(a, b) and check(a, b.clone()) and not inside and not any(check(a, other) for other in others)
    except Exception:  # any exception: calls then take the slow path
        return None
    return made if works else None


_Guards = _guards()


def _empty(kind: str) -> Callable[..., torch.Tensor]:
    def slower(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(size, stride, dtype=dtype, device=kind)

    try:
        works = _compiled._empty_strided_cpu((2, 3), (3, 1), torch.float32).stride() == (3, 1)
    except Exception:
        works = False
    return getattr(_compiled, f"_empty_strided_{kind}", slower) if works else slower


# For each type of device, a function of sizes, strides and a dtype that makes a new tensor on the current device. The function
# that torch.compile's programs call for that takes 0.4 us on a CPU; torch.empty_strided takes 1.1, and Tensor.new_empty 1.7.
EMPTY = {kind: _empty(kind) for kind in ("cuda", "cpu")}


def absent(index: int = -1) -> int:
    """Stand in for torch's functions in a torch that was built without CUDA."""
    return -1


current_device = getattr(torch._C, "_cuda_getDevice", absent)


def empty(like: torch.Tensor, size: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    """Return a new tensor of `like`'s dtype on its device. Tensor.new_empty would fill it in torch's deterministic mode, which is
    a pass over a result that is written anyway."""
    if type(like) in TENSOR_TYPES and (like.is_cpu or (like.is_cuda and like.get_device() == current_device())):
        return EMPTY[like.device.type](tuple(size), strides, like.dtype)
    return like.new_empty_strided(size, strides)
