"""What one worker holds and does: a script's model, its inputs, and the calls that the tool asks for.

Both sides run by this code, the reference's process too (reference.py adds to it what only the reference is asked), so
that their times compare.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from .. import wire
from . import script
from .slots import Slots

Request = dict[str, Any]  # the fields of a message, its "value" unpacked
Answer = dict[str, Any]  # likewise; "value" may hold tensors, the other fields are JSON

# Bound before a script is loaded, which may replace them.
_clone = torch.ops.aten.clone.default
_synchronize = torch.cuda.synchronize


class BuildError(Exception):
    """The script's model cannot be made or given the reference's parameters."""


def seed_everything(seed: int) -> None:
    """Seed the generators that a script's model and inputs may draw from: torch's, Python's, numpy's."""
    import numpy as np

    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - the generator that a script's get_inputs may use


class ScriptRunner:
    """A script, its model and its inputs on one device. Each public method that takes a request answers one."""

    def __init__(self) -> None:
        self.device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        self.path = Path()
        self.script: script.Script | None = None
        self.kernel: str | None = None
        self.model: nn.Module | None = None
        self.inputs: list[Any] = []
        self.storage: list[Tensor] = []  # the input tensors' memory, under tensor objects that the script never gets
        self.slots: Slots | None = None  # of timed windows

    def operations(self) -> dict[str, Callable[[Request], Answer]]:
        return {
            "load": self.load,
            "build": self.build,
            "set_inputs": self.set_inputs,
            "get_inputs": self.get_inputs,
            "forward": self.forward,
            "slots": self.make_slots,
            "window": self.window,
            "release": self.release,
            "adopt": self.adopt,
        }

    # ------------------------------------------------------------------------------------------------------ loading

    def load(self, request: Request) -> Answer:
        """Load the script at "path" and find its class "class_name"; "kernel", if any, will take over the model's products."""
        self.path = Path(request["path"])
        self.kernel = request.get("kernel")
        sys.path.append(str(self.path.parent))  # at the end, so that files beside the script shadow no module
        self.script = script.load(self.path, request["class_name"])
        return {}

    def build(self, request: Request) -> Answer:
        """Make the model with the constructor's arguments "init", and give it the reference's "state"."""
        given = request["value"]
        self.model = None
        seed_everything(request["seed"])
        model = self.construct(given["init"])
        copy_state(model, given["state"])
        model = model.to(self.device)
        if self.kernel is not None:
            from .rewrite import rewrite

            model = rewrite(model, self.kernel)
        self.model = model
        return {}

    def construct(self, init: list[Any]) -> nn.Module:
        assert self.script is not None
        model = self.script.model(*init)
        if not isinstance(model, nn.Module):
            raise BuildError(f"{self.script.model.__name__}(...) made a {type(model).__name__}, not an nn.Module")
        return model

    # ------------------------------------------------------------------------------------------------------ inputs

    def set_inputs(self, request: Request) -> Answer:
        self.place(list(request["value"]))
        return {}

    def get_inputs(self, request: Request) -> Answer:
        """The inputs as they are now, to see whether the script wrote to them."""
        return {"value": self.inputs}

    def place(self, values: list[Any]) -> None:
        """Make `values` the inputs. If they fit into the present input tensors these get the new data, and keep their
        objects and addresses, so that a result remembered by either is a wrong result."""
        new, spec = pytree.tree_flatten(values)
        old, old_spec = pytree.tree_flatten(self.inputs)
        tensors = [t for t in new if isinstance(t, Tensor)]
        same = spec == old_spec and len(tensors) == len(self.storage)
        if same and all(_alike(t, stored) for t, stored in zip(tensors, self.storage, strict=True)):
            for t, stored in zip(tensors, self.storage, strict=True):
                stored.copy_(t)
            present = iter([x for x in old if isinstance(x, Tensor)])
            self.inputs = pytree.tree_unflatten([next(present) if isinstance(x, Tensor) else x for x in new], spec)
        else:
            self.storage, self.inputs = [], []
            placed = [t.to(self.device) if isinstance(t, Tensor) else t for t in new]
            self.inputs = pytree.tree_unflatten(placed, spec)
            self.storage = [t.detach() for t in placed if isinstance(t, Tensor)]

    # ------------------------------------------------------------------------------------------------------ running

    def call(self) -> Any:
        assert self.model is not None
        return self.model(*self.inputs)

    def copy(self, output: Any) -> Any:
        """A copy of the output, made on the current stream right behind the call."""
        for path, leaf in wire.leaves(output):
            if isinstance(leaf, Tensor) and type(leaf) not in (Tensor, nn.Parameter):
                raise TypeError(
                    f"{path} is a {type(leaf).__name__}: a plain torch.Tensor is needed, computed when it returns"
                )
        return pytree.tree_map_only(Tensor, lambda t: _clone(t.detach()), output)

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            _synchronize(self.device)

    def forward(self, request: Request) -> Answer:
        """Call the model once. The output, or where its tensors have more than "limit" bytes their shapes as "too_large"."""
        self.synchronize()
        seed_everything(request["seed"])
        output = self.copy(self.call())
        self.synchronize()
        tensors = [leaf for _, leaf in wire.leaves(output) if isinstance(leaf, Tensor)]
        answer: Answer = {"devices": sorted({t.device.type for t in tensors})}
        if set(answer["devices"]) - {self.device.type}:
            return answer  # on meta, say, which has no data to send: the tool says where the output is
        limit = request.get("limit")
        if limit is not None and sum(t.numel() * t.element_size() for t in tensors) > limit:
            return {**answer, "too_large": [[list(t.shape), str(t.dtype)] for t in tensors[:16]]}
        return {**answer, "value": output}

    # ------------------------------------------------------------------------------------------------------ windows

    def make_slots(self, request: Request) -> Answer:
        """Slots for timed windows as the request describes them (see slots.py), in place of those that there were."""
        if self.slots is not None:
            self.slots.close()
        self.slots = Slots(request, self.device, seed_everything)
        return {}

    def window(self, request: Request) -> Answer:
        """Call the model on slots; see Slots.window."""
        assert self.slots is not None
        return self.slots.window(request, self._model)

    def release(self, request: Request) -> Answer:
        assert self.slots is not None
        self.slots.release()
        return {}

    def adopt(self, request: Request) -> Answer:
        """Make copies of the first slot's inputs, which come as for a window, the inputs."""
        assert self.slots is not None
        inputs = self.slots.first_inputs(request)
        self.place(pytree.tree_map_only(Tensor, _clone, inputs))
        self.slots.release()
        return {}

    def _model(self, *inputs: Any) -> Any:
        assert self.model is not None
        return self.model(*inputs)


def _alike(t: Tensor, stored: Tensor) -> bool:
    """Whether `t` can be copied into the memory of `stored` as it is."""
    return t.shape == stored.shape and t.dtype == stored.dtype and t.stride() == stored.stride() and _dense(stored)


def _dense(t: Tensor) -> bool:
    """Whether the entries fill a contiguous piece of memory, in whatever order of axes."""
    strides = t.stride()
    order = sorted(range(t.dim()), key=lambda axis: (-strides[axis], axis))
    return t.permute(order).is_contiguous()


def copy_state(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Give `model` the reference's parameters and buffers; BuildError says what does not fit."""
    own = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    problems = [
        f"it has no {name!r} {tuple(value.shape)}, which the reference has"
        for name, value in state.items()
        if name not in own
    ]
    problems += [
        f"it has {name!r} {tuple(value.shape)}, which the reference has not"
        for name, value in own.items()
        if name not in state
    ]
    problems += [
        f"its {name!r} is {tuple(own[name].shape)}, the reference's is {tuple(value.shape)}"
        for name, value in state.items()
        if name in own and own[name].shape != value.shape
    ]
    if problems:
        raise BuildError(
            f"{type(model).__name__} cannot take over the reference's parameters: {'; '.join(problems)}. "
            "Its parameters and buffers must have the reference's names and shapes"
        )
    model.load_state_dict(state)
