"""`Linear`, torch.nn.Linear computed by mm32 with its activation fused, and `replace_linear`, which puts it into a model."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from mm32 import cpu, direct, gemm, ops
from mm32.packed import PackedOperand, pack

log = logging.getLogger("mm32")

# What tensors are, and what stands for them while they are traced. Other subclasses (DTensor, quantized weights) implement
# torch's operators, not mm32's.
_TENSORS = (torch.Tensor, torch.nn.Parameter, FakeTensor, FunctionalTensor)


class _Kept(NamedTuple):
    """A packed weight, what it was packed from, and on which stream; the event is when it was there (None on the CPU)."""

    packed: PackedOperand
    weight: tuple
    stream: int
    packing_done: torch.cuda.Event | None


class Linear(torch.nn.Linear):
    """``activation(x @ weight.T + bias)``: torch.nn.Linear, its activation fused into the product where no gradient is needed.

    Parameters, their names and their initialization are torch.nn.Linear's, so state dicts fit both ways. Where mm32 does not
    apply it computes what torch.nn.Linear would: parameters or input that are not float32, subclasses of torch.Tensor, autocast,
    devices without kernels.

    In eval mode with gradients disabled, the weight is packed at the first call and kept packed (`mm32.pack`): device memory for
    another copy of the weight, for faster calls. It is packed again when the weight has changed, and let go by ``train()`` and
    by moves to another device or dtype; it is in no state dict, copy or pickle. As with `mm32.pack`, writes through
    ``weight.data`` are not seen: call ``train()``, then ``eval()`` after them. Not packed: under torch.compile, transforms of
    torch.func and dispatch modes, while a CUDA graph is captured (a replay must see later changes of the weight), and weights
    that are computed (parametrizations).

    Args:
        in_features: K, as in torch.nn.Linear.
        out_features: N.
        bias: whether there is one, of shape (N,).
        device: of the parameters.
        dtype: of the parameters; float32 for mm32 to apply.
        activation: as in `mm32.matmul`; None for none.
    """

    activation: str | None = None
    _kept: _Kept | None = None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        activation: str | None = None,
    ) -> None:
        gemm.check_options(activation, "fp32")
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """input is (…, in_features); the result (…, out_features)."""
        weight, bias = self.weight, self.bias
        if not _takes(input, weight, bias):
            return cpu.activate(F.linear(input, weight, bias), self.activation)
        if torch.is_grad_enabled():
            if any(t is not None and t.requires_grad for t in (input, weight, bias)):
                # Autograd keeps the pre-activation here; fused, backward would compute it again, a product more.
                return cpu.activate(ops.linear(input, weight, bias), self.activation)
            return ops.linear(input, weight, bias, activation=self.activation)
        packed = self._packed_weight()
        return ops.linear(input, weight if packed is None else packed, bias, activation=self.activation)

    def _packed_weight(self) -> PackedOperand | None:
        """The weight packed, from an earlier call or newly; None where it is not to be. For calls without gradients."""
        weight = self.weight
        if (
            self.training
            or torch.compiler.is_compiling()
            or direct.observed()  # panels would be the transform's own, or stay in what is traced
            or type(weight) is not torch.nn.Parameter  # computed anew for each call, or not plain memory
            or weight.is_inference()  # its changes are not counted
            or (weight.is_cuda and torch.cuda.is_current_stream_capturing())
        ):
            return None
        # The kept operand keeps the weight's memory: no other weight can have its address.
        described = weight.data_ptr(), weight._version, weight.device, weight.shape, weight.stride()
        stream = torch._C._cuda_getCurrentRawStream(weight.device.index) if weight.is_cuda else 0
        kept = self._kept
        if kept is None or kept.weight != described:
            self._kept = None  # its memory can be used for what comes
            packed = pack(weight.detach().T)
            done = torch.cuda.current_stream(weight.device).record_event() if weight.is_cuda else None
            kept = self._kept = _Kept(packed, described, stream, done)
        elif kept.stream != stream and kept.packing_done is not None:
            current = torch.cuda.current_stream(weight.device)
            current.wait_event(kept.packing_done)
            kept.packed.memory.record_stream(current)
        return kept.packed

    def train(self, mode: bool = True) -> Linear:
        if mode:
            self._kept = None
        return super().train(mode)

    def _apply(self, fn: Callable, recurse: bool = True) -> Linear:
        self._kept = None
        return super()._apply(fn, recurse)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_kept"}

    def extra_repr(self) -> str:
        return super().extra_repr() + (f", activation={self.activation!r}" if self.activation is not None else "")


def _takes(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """Whether the layer is mm32's to compute."""
    if not all(
        t is None
        or (type(t) in _TENSORS and t.dtype is torch.float32 and t.layout is torch.strided and not t.is_nested)
        for t in (input, weight, bias)
    ):
        return False
    device = input.device.type
    return device in ("cuda", "cpu", "meta") and not (device != "meta" and torch.is_autocast_enabled(device))


# ---------------------------------------------------------------------------------------------------------------------


def replace_linear(
    model: torch.nn.Module, filter: Callable[[str, torch.nn.Linear], bool] | None = None
) -> torch.nn.Module:
    """Makes every torch.nn.Linear of a model an `mm32.nn.Linear`, in place, and returns the model.

    The modules stay the objects that they are, so parameters, hooks, sharing and the state dict's keys stay as well. An
    activation that directly follows in a torch.nn.Sequential (ReLU, LeakyReLU(0.01), GELU, SiLU, Tanh, Sigmoid) is fused and its
    place taken by an Identity, unless the layer is used elsewhere too or either has hooks that would see the difference.

    Subclasses of torch.nn.Linear, and layers whose ``forward`` was replaced, are left as they are; the logger "mm32" names them
    in a warning.

    Args:
        filter: called with a layer's qualified name and the layer; False leaves it as it is. None takes all.

    Raises:
        TypeError: the model is no torch.nn.Module, or the filter cannot be called.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"mm32.replace_linear takes a torch.nn.Module, got {type(model).__name__}")
    if not (filter is None or callable(filter)):
        raise TypeError(f"mm32.replace_linear: filter must be a function or None, got {type(filter).__name__}")
    taken: set[torch.nn.Module] = set()
    left = []
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or isinstance(module, Linear):
            continue
        if type(module) is not torch.nn.Linear:
            left.append(f"{name or 'the model'} ({type(module).__name__}, a subclass of torch.nn.Linear)")
        elif "forward" in vars(module):
            left.append(f"{name or 'the model'} (its forward was replaced)")
        elif filter is None or filter(name, module):
            module.__class__ = Linear
            taken.add(module)
    _fuse_activations(model, taken)
    if left:
        log.warning("mm32.replace_linear left as they are: %s", ", ".join(left))
    return model


def _fuse_activations(model: torch.nn.Module, taken: set[torch.nn.Module]) -> None:
    places = Counter(child for module in model.modules() for child in module._modules.values() if child is not None)
    for module in list(model.modules()):
        if type(module).forward is not torch.nn.Sequential.forward or "forward" in vars(module):
            continue
        children = list(module._modules.items())
        for (_, layer), (name, following) in itertools.pairwise(children):
            if not isinstance(layer, Linear) or layer not in taken or places[layer] > 1 or following is None:
                continue
            activation = _activation_of(following)
            if activation is None or _hooked(following, before=True) or _hooked(layer, before=False):
                continue
            layer.activation = activation
            module._modules[name] = torch.nn.Identity().train(following.training)


def _activation_of(module: torch.nn.Module) -> str | None:
    """The activation that a module of torch's is, if mm32 has it."""
    nn = torch.nn
    if type(module) is nn.LeakyReLU:
        return "leaky_relu" if module.negative_slope == 0.01 else None
    if type(module) is nn.GELU:
        return {"none": "gelu", "tanh": "gelu_tanh"}[module.approximate]
    return {nn.ReLU: "relu", nn.SiLU: "silu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid"}.get(type(module))


def _hooked(module: torch.nn.Module, before: bool) -> bool:
    """Whether a module has hooks that see what comes out of it, its gradient, or, with `before`, what goes in."""
    hooks = [module._forward_hooks, module._backward_hooks, module._backward_pre_hooks]
    return any(map(len, [*hooks, module._forward_pre_hooks] if before else hooks))
