"""Windows: calls of the model on slots of memory that the tool fills and reads.

A window is one message: call the model on the given number of slots, in order. The memory of all slots, inputs and outputs, is
new to this process in every window: its descriptor comes with the message, so nothing about the data is known before. Each
output is copied into its slot right after the call that made it, on the current stream, so work that is left running elsewhere
is not waited for. The tool closes the window by its own clock when it has copied the outputs out of the slots; what is
returned here (seconds, whether random numbers were drawn) is only advice.

The null worker runs the same code, with ready-made outputs in place of a model's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..exchange import memory, named, wire

# Bound before a script is loaded, since it may replace them.
_now = time.perf_counter
_copy = Tensor.copy_
_detach = Tensor.detach
_address = Tensor.data_ptr
_synchronize = torch.cuda.synchronize
_leaves = wire.leaves
PLAIN = (Tensor, nn.Parameter)  # exactly these: a subclass may compute its entries when they are looked at


class Slots:
    """Memory for a window's calls, and the tensors over it: the same objects in every window."""

    def __init__(self, request: dict[str, Any], device: torch.device, seed: Callable[[int], None]):
        self.device = device
        self.seed = seed
        self.region = memory.reserve(request["size"], device)
        self.description = request
        self.inputs: list[list[Any]] = []
        self.outputs: list[list[tuple[str, Tensor | None]]] = []
        self.ready: list[Tensor] = []  # the null worker's outputs, and where it copies them for each call
        self.ready_for: list[list[Tensor]] = []

    def close(self) -> None:
        self.inputs, self.outputs, self.ready, self.ready_for = [], [], [], []
        self.synchronize()
        self.region.close()

    def synchronize(self) -> None:
        """Wait for all of the device, whatever stream it works on."""
        if self.device.type == "cuda":
            _synchronize(self.device)

    def _make(self) -> None:
        given = self.description
        whole = self.region.bytes()
        tree = given["value"]
        for i in range(given["count"]):
            views = iter([view(whole, part, i) for part in given["inputs"]])
            self.inputs.append([_placed(item, views) for item in tree])
            self.outputs.append(
                [(part["path"], view(whole, part, i) if "dtype" in part else None) for part in given["outputs"]]
            )
        if given["null"]:
            self.ready_for = [[t for _, t in slot if t is not None] for slot in self.outputs]
            self.ready = [torch.zeros_like(t) for t in self.ready_for[0]]

    def window(self, request: dict[str, Any], call: Callable[[list[Any]], Any]) -> dict[str, Any]:
        """Call the model on the first "count" slots. With "seeds", all generators are seeded before each call; with "watch", the
        answer says whether the calls drew from them.

        If a slot cannot take an output, the answer's "misfit" says what was wrong with it, and "misfit_call" which call's it was.
        The null worker delivers its outputs only with "deliver".
        """
        self._map(request)
        begin = _now()
        seeds, misfit, i = request["seeds"], None, 0
        values: list[Any] = []
        before = random_states(self.device) if request["watch"] else None
        for i in range(request["count"]):
            if seeds:
                self.seed(seeds[i])
            if self.description["null"]:
                if request["deliver"]:
                    for target, source in zip(self.ready_for[i], self.ready, strict=True):
                        _copy(target, source)
                continue
            misfit = self._deliver(call(self.inputs[i]), self.outputs[i], values)
            if misfit is not None:
                break
        self.synchronize()
        draws = before is not None and before != random_states(self.device)
        return {"seconds": _now() - begin, "misfit": misfit, "misfit_call": i, "values": values, "draws": draws}

    def first_inputs(self, request: dict[str, Any]) -> list[Any]:
        self._map(request)
        return self.inputs[0]

    def _map(self, request: dict[str, Any]) -> None:
        (descriptor,) = request["descriptors"]
        self.region.map(descriptor, request["ranges"])
        if not self.outputs:
            self._make()

    def release(self) -> None:
        self.synchronize()
        self.region.release()

    def _deliver(self, output: Any, slot: list[tuple[str, Tensor | None]], values: list[Any]) -> str | None:
        """Copy an output's tensors into its slot, and append its other leaves to `values`. Return what does not fit, or None."""
        found = _leaves(output)
        if len(found) != len(slot):
            return f"{len(found)} leaves, the reference's output has {len(slot)}"
        by_path = dict(found)
        for path, target in slot:
            if path not in by_path:
                return f"no {path}"
            leaf = by_path[path]
            if target is None:
                if not (leaf is None or type(leaf) in (bool, int, float, str)):
                    return f"{path} is a {type(leaf).__name__}"
                values.append(leaf)
                continue
            if type(leaf) not in PLAIN:
                return f"{path} is a {type(leaf).__name__}: a plain torch.Tensor is needed, computed when it returns"
            if leaf.shape != target.shape or leaf.dtype != target.dtype or leaf.device != target.device:
                return (
                    f"{path} is {tuple(leaf.shape)} {leaf.dtype} on {leaf.device}, "
                    f"the reference's is {tuple(target.shape)} {target.dtype} on {target.device}"
                )
            if leaf.layout is not torch.strided:
                return f"{path} has layout {leaf.layout}"
            if _address(leaf) == _address(target) and target.nbytes:
                return f"{path} is in the tool's own memory for it, which no caller gives a model"
            _copy(target, _detach(leaf))
        return None


def view(whole: Tensor, part: dict[str, Any], slot: int) -> Tensor:
    """Return a tensor of slot number `slot`, over the region's bytes; its version counter is its own (`data`)."""
    dtype = wire.DTYPES[part["dtype"]]
    at = part["offset"] + slot * part["step"]
    return whole[at : at + part["bytes"]].view(dtype).as_strided(part["shape"], part["strides"]).data


def _placed(tree: Any, tensors: Iterator[Tensor]) -> Any:
    """Return `tree` with its tensors, which are only placeholders, replaced by the next ones of `tensors`."""
    if isinstance(tree, Tensor):
        return next(tensors)
    if isinstance(tree, dict):
        return {key: _placed(item, tensors) for key, item in tree.items()}
    if isinstance(tree, (list, tuple)):
        return named.like(tree, [_placed(item, tensors) for item in tree])
    return tree


def random_states(device: torch.device) -> tuple[Any, ...]:
    """Return the states of the generators that a model may draw from: equal if nothing was drawn in between."""
    import numpy as np

    states: list[Any] = [torch.default_generator.get_state().numpy().tobytes(), random.getstate()]
    numpy: Any = np.random.get_state(legacy=False)  # noqa: NPY002 - the generator that a script may use
    states.append((numpy["state"]["key"].tobytes(), numpy["state"]["pos"]))
    if device.type == "cuda":
        states.append(torch.cuda.default_generators[device.index or 0].get_state().numpy().tobytes())
    return tuple(states)
