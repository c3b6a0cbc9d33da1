"""The table of activations. Everything that knows an activation reads it from here.

To add an activation, add a line to `ACTIVATIONS`, a case to `scripted`, and a case with the same number to the kernels'
epilogue.cuh.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from mm32 import options as types

_aten = torch.ops.aten


@dataclass(frozen=True, eq=False)
class Activation:
    """One element-wise function that mm32 fuses, named as torch names it."""

    name: types.Activation
    number: int
    """MM32_ACTIVATION in the kernels' epilogue.cuh. 0 stands for none."""
    function: Callable[..., torch.Tensor]
    """torch's function, called with `options`; differentiable."""
    in_place: Callable[..., object]
    """The same, overwriting its argument; called with `options`. It must not pass autocast."""
    times_slope: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    """(grad, value) -> grad * act'(z), differentiable again. `value` is act(z) if `slope_of_result`, else z."""
    slope_of_result: bool
    """Whether act'(z) is a function of act(z), so that backward needs only the result."""
    smooth: bool
    """Whether it is curved, so that computing it adds an error of its own; else it is piecewise linear."""
    module: type[torch.nn.Module]
    """torch's module. An instance is this activation if its attributes equal `options`."""
    aten: torch._ops.OpOverload
    """What a traced program calls, with `options`."""
    calls: tuple[Any, ...]
    """Functions and names of tensor methods that compute it when they are called with `options`."""
    options: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments, which are attributes of the module too."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return act(x) as a new tensor."""
        return self.function(x, **self.options)


def _relu_slope(grad: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return _aten.threshold_backward(grad, value, 0)


def _leaky_relu_slope(grad: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return _aten.leaky_relu_backward(grad, value, 0.01, True)


def _silu_slope(grad: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    s = torch.sigmoid(value)  # torch's silu_backward does not support forward mode
    return grad * (s * (1 + value * (1 - s)))


def _gelu_in_place(x: torch.Tensor, approximate: str) -> object:
    return _aten.gelu.out(x, approximate=approximate, out=x)


def _gelu_slope(grad: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return _aten.gelu_backward(grad, value, approximate="none")


def _gelu_tanh_slope(grad: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return _aten.gelu_backward(grad, value, approximate="tanh")


_nn = torch.nn
# fmt: off
ACTIVATIONS: tuple[Activation, ...] = (
    Activation("relu", 1, torch.relu, torch.relu_, _relu_slope, True, False, _nn.ReLU, _aten.relu.default,
               (torch.relu, torch.relu_, F.relu, "relu", "relu_")),
    Activation("leaky_relu", 2, F.leaky_relu, _aten.leaky_relu_.default, _leaky_relu_slope, True, False, _nn.LeakyReLU,
               _aten.leaky_relu.default, (F.leaky_relu,), {"negative_slope": 0.01}),
    Activation("gelu", 3, F.gelu, _gelu_in_place, _gelu_slope, False, True, _nn.GELU, _aten.gelu.default,
               (F.gelu,), {"approximate": "none"}),
    Activation("gelu_tanh", 4, F.gelu, _gelu_in_place, _gelu_tanh_slope, False, True, _nn.GELU, _aten.gelu.default,
               (F.gelu,), {"approximate": "tanh"}),
    Activation("silu", 5, F.silu, _aten.silu_.default, _silu_slope, False, True, _nn.SiLU, _aten.silu.default, (F.silu,)),
    Activation("tanh", 6, torch.tanh, torch.tanh_, _aten.tanh_backward, True, True, _nn.Tanh, _aten.tanh.default,
               (torch.tanh, F.tanh, "tanh")),
    Activation("sigmoid", 7, torch.sigmoid, torch.sigmoid_, _aten.sigmoid_backward, True, True, _nn.Sigmoid,
               _aten.sigmoid.default, (torch.sigmoid, F.sigmoid, "sigmoid")),
)
# fmt: on
_BY_NAME: dict[str, Activation] = {activation.name: activation for activation in ACTIVATIONS}


def names() -> tuple[str, ...]:
    """The names of the activations, in the order of their numbers."""
    return tuple(_BY_NAME)


def number(name: str | None) -> int:
    """MM32_ACTIVATION for an activation's name; 0 for None."""
    return 0 if name is None else _BY_NAME[name].number


def name(number: int) -> str | None:
    """The name of the activation with this number; None for 0. Raises IndexError if there is none."""
    return None if number == 0 else ACTIVATIONS[number - 1].name


def named(name: str) -> Activation:
    """The activation of that name. Raises KeyError if there is none."""
    return _BY_NAME[name]


def of_module(module: torch.nn.Module) -> Activation | None:
    """The activation that a torch module computes, or None. It is also None for subclasses of torch's modules."""
    for activation in ACTIVATIONS:
        if type(module) is activation.module and all(getattr(module, k) == v for k, v in activation.options.items()):
            return activation
    return None


def scripted(x: torch.Tensor, name: str) -> torch.Tensor:
    """Return act(x) for the activation `name`, in code that TorchScript can compile: without the table."""
    if name == "relu":
        return torch.relu(x)
    if name == "leaky_relu":
        return F.leaky_relu(x)
    if name == "gelu":
        return F.gelu(x)
    if name == "gelu_tanh":
        return F.gelu(x, approximate="tanh")
    if name == "silu":
        return F.silu(x)
    if name == "tanh":
        return torch.tanh(x)
    assert name == "sigmoid"
    return torch.sigmoid(x)
