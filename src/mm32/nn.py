"""Layers: `Linear`, which is torch.nn.Linear with its activation fused, computed by mm32; `replace_linear`, which puts it into a
model; `freeze`, which packs its weights."""

from __future__ import annotations

import functools
import itertools
import logging
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, Optional, cast

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from mm32 import activations, dispatch, functions, gemm, torch_product
from mm32.options import Activation
from mm32.packed import PackedOperand, local_of, pack

log = logging.getLogger("mm32")

# Ordinary tensors, and those that stand for them while a program is traced. Other subclasses (quantized weights) implement
# torch's operators, not mm32's. Exceptions are DTensors, and the tensors that a collective returns before it is done: they
# implement any operator.
_TENSORS = (torch.Tensor, torch.nn.Parameter, FakeTensor, FunctionalTensor)
_left_to_torch: set[type] = set()  # subclasses that the log has named
NAMED = 8  # the most types of modules that a warning names


class _Kept(NamedTuple):
    """A packed weight. `weight`: the state of the weight that was packed (`_state`). `stream`: where it was packed.
    `packing_done`: an event after the packing (None on the CPU)."""

    packed: PackedOperand
    weight: tuple | None
    stream: int
    packing_done: torch.cuda.Event | None


class Linear(torch.nn.Linear):
    """``activation(x @ weight.T + bias)``: torch.nn.Linear with its activation fused into the product. While gradients are
    recorded, an activation whose slope does not follow from its result (gelu, gelu_tanh, silu) is computed after the product.

    Parameters, their names and their initialization are those of torch.nn.Linear, so state dicts fit both ways. The layer
    computes what torch.nn.Linear would if parameters or input are not float32 or are subclasses of torch.Tensor that only
    implement torch's operators (the logger "mm32" names these once), under autocast, and on devices without kernels. It accepts
    DTensors (docs/distributed.md).

    Every call reads the weight as it is then. `mm32.freeze` packs the weights of a model for faster calls.

    Args:
        in_features: K, as in torch.nn.Linear.
        out_features: N.
        bias: whether the layer has a bias, of shape (N,).
        device: that of the parameters.
        dtype: that of the parameters; mm32 computes float32 only.
        activation: as in `mm32.matmul`; None for none.

    Raises:
        ValueError: unknown activation.

    Example:
        >>> mm32.nn.Linear(64, 128, activation="relu")(torch.randn(16, 64)).shape
        torch.Size([16, 128])
    """

    # Type comments: torch.jit.script evaluates annotations of attributes, and cannot evaluate these.
    activation = None  # type: Activation | None
    # The layer itself while it is frozen. Of a copy, made in whatever way, it is still the layer that was copied.
    _frozen = None  # type: weakref.ref[Linear] | None
    _kept = None  # type: _Kept | None
    # id of the weight that was packed last. It is not a weak reference, because torch does not swap tensors that have one.
    _packed_id = 0
    _steps = 0  # steps of optimizers on that weight: torch does not count the changes of fused and multi-tensor steps

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        activation: Activation | None = None,
    ) -> None:
        gemm.check_options(activation, "fp32")
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the layer's result, (…, out_features), for an input (…, in_features)."""
        if torch.jit.is_scripting():
            return _scripted(input, self.weight, self.bias, self.activation)
        else:  # TorchScript leaves this branch out, but would compile code after the `if`
            return self._forward(input)

    def _forward(self, input: torch.Tensor) -> torch.Tensor:
        weight, bias, activation = self.weight, self.bias, self.activation
        if not _takes(input, weight, bias):
            return torch_product.activate(F.linear(input, weight, bias), activation)
        recorded = (
            isinstance(input, torch.Tensor)
            and torch.is_grad_enabled()
            and (input.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad))
            and not torch.jit.is_tracing()  # a traced program must not depend on whether gradients are recorded
        )
        packed = self._packed_weight(weight) if self._is_frozen() and not recorded else None
        if packed is None:
            return functions.linear(input, weight, bias, activation=activation)
        return functions.matmul(input, packed, bias=bias, activation=activation)

    # -----------------------------------------------------------------------------------------------------------------
    # Frozen

    def __setattr__(self, name: str, value: Any) -> None:
        # FSDP2 sets the weight when it has gathered it, and again when it releases it; in between it writes to the gathered
        # weight without torch counting that. It calls __setattr__ because this class has one, which drops the packed form.
        if name == "weight" and self._kept is not None:
            self._kept = None
        super().__setattr__(name, value)

    def _packed_weight(self, weight: torch.Tensor) -> PackedOperand | None:
        """The packed weight, from an earlier call or packed now; None if a packed weight must not be used here."""
        if (
            torch.compiler.is_dynamo_compiling()
            or dispatch.observed()  # the packed form would belong to the transform, or stay in the traced program
            or (weight.is_cuda and torch._C._cuda_isCurrentStreamCapturing())  # a replay must see later weights
        ):
            return None
        stream = torch._C._cuda_getCurrentRawStream(weight.device.index) if weight.is_cuda else 0
        kept, state = self._kept, _state(weight, self._steps)
        # The kept operand keeps the memory of its source alive, so no other weight can have that address.
        if kept is None or kept.weight != state:
            if _why_not(weight) is not None:
                return None
            self._kept = None  # its memory can be reused
            self._packed_id = id(weight)  # set before the weight is read, so that a step in the meantime counts
            with torch.inference_mode(False), torch.no_grad():  # DTensors cannot be detached in inference mode
                packed = pack(weight.detach().T)
            done = torch.cuda.current_stream(weight.device).record_event() if weight.is_cuda else None
            kept = self._kept = _Kept(packed, state, stream, done)
        elif kept.stream != stream and kept.packing_done is not None:
            current = torch.cuda.current_stream(weight.device)
            current.wait_event(kept.packing_done)
            kept.packed.memory.record_stream(current)
        return kept.packed

    def _is_frozen(self) -> bool:
        return self._frozen is not None and self._frozen() is self

    def _freeze(self) -> None:
        _count_steps()
        with _lock:
            _frozen_layers.add(self)
        self._frozen, self._kept = weakref.ref(self), None

    def _release(self) -> None:
        self._frozen = self._kept = None
        with _lock:
            _frozen_layers.discard(self)

    def train(self, mode: bool = True) -> Linear:
        """As torch.nn.Module.train. In training mode a layer is not frozen (`mm32.freeze`)."""
        if mode:
            self._release()
        return super().train(mode)

    def _apply(self, fn: Callable, recurse: bool = True) -> Linear:
        self._kept = None  # a frozen layer packs the moved weight at its next call
        return super()._apply(fn, recurse)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        # torch.distributed.checkpoint.load writes to the tensors of a state dict, which torch does not count for a DTensor.
        if self._kept is not None and gemm.is_dtensor(self.weight):
            self._kept = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _OF_FROZEN}

    def extra_repr(self) -> str:
        return super().extra_repr() + (f", activation={self.activation!r}" if self.activation is not None else "")


def _state(weight: torch.Tensor, steps: int) -> tuple | None:
    """The properties of a weight that change with a write that torch counts, a move, or an optimizer's step. None if torch does
    not count writes to it."""
    if weight.is_inference():
        return None
    local = local_of(weight) if gemm.is_dtensor(weight) else weight
    return local.data_ptr(), weight._version, local._version, steps, weight.shape, weight.stride()


_OF_FROZEN = ("_frozen", "_kept", "_packed_id", "_steps")
_frozen_layers: weakref.WeakSet[Linear] = weakref.WeakSet()
_lock = threading.Lock()  # of _frozen_layers


@functools.cache
def _count_steps() -> None:
    """Count the steps of optimizers on frozen layers, from now on in this process."""

    def count(optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict) -> None:
        stepped = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        with _lock:
            layers = list(_frozen_layers)
        for layer in layers:
            if layer._packed_id in stepped:
                layer._steps += 1

    register_optimizer_step_post_hook(count)


def _takes(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """Return whether mm32 computes the layer."""
    if not isinstance(input, torch.Tensor):
        return bool(functions.foreign(input))  # if it is none, torch's error says what it takes
    for t in (input, weight, bias):
        if t is None:
            continue
        if not (type(t) in _TENSORS or gemm.is_dtensor(t) or type(t).__name__ == "AsyncCollectiveTensor"):
            if isinstance(t, torch.Tensor) and t.dtype is torch.float32:
                _say_left_to_torch(type(t))
            return False
        if t.dtype is not torch.float32 or t.layout is not torch.strided or t.is_nested:
            return False
    device = input.device.type
    return device in ("cuda", "cpu", "meta") and not (device != "meta" and torch.is_autocast_enabled(device))


def _say_left_to_torch(kind: type) -> None:
    """Log, once for each class, that torch computes in place of mm32."""
    if kind not in _left_to_torch and not torch.compiler.is_compiling():
        _left_to_torch.add(kind)
        log.warning("mm32.nn.Linear leaves products of %s, a subclass of torch.Tensor, to torch", kind.__name__)


def _scripted(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional[torch.Tensor],  # noqa: UP045  (TorchScript reads this one)
    activation: Optional[str],  # noqa: UP045
) -> torch.Tensor:
    """Compute the layer in TorchScript: by mm32's operator, or by torch if it is not float32. Autocast is not checked."""
    if input.dtype != torch.float32 or weight.dtype != torch.float32:
        x = F.linear(input, weight, bias)
        return x if activation is None else activations.scripted(x, activation)
    return torch.ops.mm32.matmul(input, weight.t(), bias, activation, "fp32", "auto")


# ---------------------------------------------------------------------------------------------------------------------


def freeze(model: torch.nn.Module) -> torch.nn.Module:
    """Pack the weights of every `mm32.nn.Linear` of a model in eval mode, in place, and return the model. Calls without gradients
    are faster then, and the weights take twice the memory.

    The packed form of a weight (N, K) takes 4 bytes of device memory for each element (`mm32.pack`). A frozen layer packs its
    weight again after a change that torch counts (operations in place, ``load_state_dict``, a new parameter), after a step of
    one of torch's optimizers that has it, and after a move. A weight that FSDP2 shards (``fully_shard``) is packed when it has
    been gathered, and its packed form is released with the gathered weight.

    **torch does not count** writes through ``weight.data``, writes by other libraries or by a replayed CUDA graph, collectives in
    place (``torch.distributed.broadcast``, ``all_reduce``, ``scatter`` of a weight, or of the ``to_local()`` of one), and, on a
    GPU or of DTensors, some multi-tensor operations, such as the ``torch._foreach_lerp_`` of ``AveragedModel.update_parameters``
    (seen with torch 2.11). After such a write, results are those of the old weights until you call `mm32.freeze` again, which
    packs all weights anew, or unfreeze the model.

    `unfreeze` and ``train()`` release the packed weights. They are not in state dicts; copies and pickles are not frozen. A call
    does not use the packed weight while gradients are recorded, under torch.compile, transforms of torch.func and dispatch
    modes, and while a CUDA graph is captured, because replays must see later weights.

    A warning of the logger "mm32" names the layers whose weights are not packed, and why: on the CPU and on devices without
    kernels; a small K; weights that are computed (parametrizations), subclasses of torch.Tensor, not float32, or inference
    tensors.

    Raises:
        TypeError: the model is not a torch.nn.Module.
        RuntimeError: a layer is in training mode. No layer is frozen then.
        mm32.CompileError, mm32.LaunchError: as `mm32.pack`.
    """
    layers = _linear_layers(model, "freeze")
    training = [name for name, layer in layers if layer.training]
    if training:
        raise RuntimeError(
            f"mm32.freeze: these layers are in training mode: {', '.join(training)}. Call model.eval() first, or freeze a part "
            "of the model that is in eval mode"
        )
    if not layers:
        log.warning(
            "mm32.freeze found no mm32.nn.Linear in %s: mm32.replace_linear puts them there", type(model).__name__
        )
    left: dict[str, list[str]] = {}
    gathered = _gathered_by_fsdp(model)
    for name, layer in layers:
        layer._freeze()
        weight = layer.weight
        if layer in gathered:
            continue
        why = _why_not(weight)
        if why is None:
            with torch.no_grad():
                packed = layer._packed_weight(weight)
            why = "while it is traced or a CUDA graph is captured" if packed is None else packed.reason
        if why is not None:
            left.setdefault(why, []).append(name)
    for why, names in left.items():
        log.warning("mm32.freeze did not pack %s: %s", ", ".join(names), why)
    return model


def unfreeze(model: torch.nn.Module) -> torch.nn.Module:
    """Release the packed weights that `freeze` made, and return the model. Raises TypeError if it is not a torch.nn.Module."""
    for _, layer in _linear_layers(model, "unfreeze"):
        layer._release()
    return model


def _linear_layers(model: torch.nn.Module, caller: str) -> list[tuple[str, Linear]]:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"mm32.{caller} takes a torch.nn.Module, got {type(model).__name__}")
    return [(name or "the model", layer) for name, layer in model.named_modules() if isinstance(layer, Linear)]


def _gathered_by_fsdp(model: torch.nn.Module) -> set[torch.nn.Module]:
    """Modules whose parameters FSDP2 gathers before they are used: at other times this rank has only a part of them at most."""
    sharded = [m for m in model.modules() if any(kind.__name__ == "FSDPModule" for kind in type(m).__mro__)]
    return {module for each in sharded for module in each.modules()}


def _why_not(weight: torch.Tensor) -> str | None:
    """Return why a weight is not packed, or None."""
    if not (type(weight) is torch.nn.Parameter or gemm.is_dtensor(weight)):
        return "the weight is computed for each call, or is a subclass of torch.Tensor"
    if weight.dtype is not torch.float32:
        return f"the weight is {weight.dtype}"
    if weight.dim() != 2:
        return f"the weight is not a matrix: its shape is {tuple(weight.shape)}, as when FSDP1 shards it"
    if weight.is_inference():
        return "the weight is an inference tensor, whose changes torch does not count"
    return None


# ---------------------------------------------------------------------------------------------------------------------


def replace_linear(
    model: torch.nn.Module, filter: Callable[[str, torch.nn.Linear], bool] | None = None, *, fuse: bool = True
) -> torch.nn.Module:
    """Make every torch.nn.Linear of a model an `mm32.nn.Linear`, in place, and return the model.

    The modules stay the same objects, so parameters, hooks, sharing and the state dict's keys stay as well. An activation that
    directly follows in a torch.nn.Sequential (ReLU, LeakyReLU(0.01), GELU, SiLU, Tanh, Sigmoid) is fused into the layer, and an
    Identity takes its place, unless the layer is used elsewhere too, or hooks of either would see the difference. If the
    Sequential is taken apart afterwards (by a slice, another module in the activation's place, a later hook on the layer), the
    activation stays in the layer: give ``fuse=False`` for such models.

    Subclasses of torch.nn.Linear, and layers whose ``forward`` was replaced, are left as they are; the logger "mm32" names them
    in a warning. A UserWarning says so if the model has no layer of type torch.nn.Linear or mm32.nn.Linear at all.

    Args:
        filter: called with a layer's qualified name and the layer; False leaves it as it is. None takes all.
        fuse: whether activations are fused into layers.

    Raises:
        TypeError: the model is not a torch.nn.Module, or the filter cannot be called.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 8))
        >>> mm32.replace_linear(model)[0].activation
        'gelu'
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"mm32.replace_linear takes a torch.nn.Module, got {type(model).__name__}")
    if not (filter is None or callable(filter)):
        raise TypeError(f"mm32.replace_linear: filter must be a function or None, got {type(filter).__name__}")
    taken: set[torch.nn.Module] = set()
    left = []
    linear = False  # whether there is a linear layer, also one that an earlier call has replaced
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear):
            continue
        linear = True
        if isinstance(module, Linear):
            continue
        if type(module) is not torch.nn.Linear:
            left.append(f"{name or 'the model'} ({type(module).__name__}, a subclass of torch.nn.Linear)")
        elif "forward" in vars(module):
            left.append(f"{name or 'the model'} (its forward was replaced)")
        elif filter is None or filter(name, module):
            module.__class__ = Linear
            layer = cast(Linear, module)
            layer.activation = None  # TorchScript only sees attributes of the instance
            taken.add(module)
    if fuse:
        _fuse_activations(model, taken)
    if not linear:
        kinds = sorted({type(module).__name__ for module in model.modules()})
        shown = ", ".join(kinds[:NAMED]) + (", ..." if len(kinds) > NAMED else "")
        warnings.warn(
            f"mm32.replace_linear found no torch.nn.Linear in {type(model).__name__}, whose modules are of types {shown}: "
            "nothing was replaced. mm32.enable() takes products that are no such layer's",
            stacklevel=2,
        )
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
            activation = activations.of_module(following)
            if activation is None or _hooked(following, before=True) or _hooked(layer, before=False):
                continue
            layer.activation = activation.name
            module._modules[name] = torch.nn.Identity().train(following.training)


def _hooked(module: torch.nn.Module, before: bool) -> bool:
    """Return whether a module has hooks that see its output, its gradient, or, with `before`, its input."""
    hooks = [module._forward_hooks, module._backward_hooks, module._backward_pre_hooks]
    return any(map(len, [*hooks, module._forward_pre_hooks] if before else hooks))
