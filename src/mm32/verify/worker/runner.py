"""What one worker holds and does: a script's model, its inputs, and the calls that the tool asks for.

Both sides run this code, the reference's process too, so that their times can be compared. reference/ adds to it what only
the reference is asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.jit._script import OrderedDictWrapper, OrderedModuleDict
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from ..exchange import handover, memory, named, wire
from . import caches, plain, script
from .kept_draws import KeptDraws
from .slots import PLAIN, Slots, random_states

Request = dict[str, Any]  # the fields of a message, its "value" unpacked
Answer = dict[str, Any]  # likewise; "value" may hold tensors, the other fields are JSON

# Bound before a script is loaded, since it may replace them.
_clone = torch.ops.aten.clone.default
_copy_all = torch.ops.aten._foreach_copy_.default
_synchronize = torch.cuda.synchronize
_sha256 = hashlib.sha256
_dict_of, _get = object.__getattribute__, dict.get
_seed_torch, _seed_random, _seed_numpy = torch.Generator.manual_seed, random.seed, np.random.seed
# torch's generators, as torch.manual_seed seeds them; a runner adds those of its cards
_generators = [torch.default_generator]

SCRIPTED = (OrderedDictWrapper, OrderedModuleDict)  # what a scripted module keeps its tensors and modules in


class BuildError(Exception):
    """The script's model cannot be made or given the reference's parameters."""


def seed_everything(seed: int) -> None:
    """Seed the generators that a script's model and inputs may draw from: torch's, Python's, numpy's."""
    for generator in _generators:
        _seed_torch(generator, seed)
    seed_others(seed)


def seed_others(seed: int) -> None:
    """Seed Python's generator and numpy's."""
    _seed_random(seed)
    _seed_numpy(seed % 2**32)


@contextlib.contextmanager
def kept_generators() -> Iterator[None]:
    """Leave the generators that `seed_everything` seeds as they are found."""
    states = [generator.get_state() for generator in _generators], random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        for generator, state in zip(_generators, states[0], strict=True):
            generator.set_state(state)
        random.setstate(states[1])
        np.random.set_state(states[2])  # noqa: NPY002


class ScriptRunner:
    """A script, its model and its inputs on one device. Each public method that takes a request answers one."""

    def __init__(self) -> None:
        self.device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            torch.cuda.init()
            _generators[1:] = torch.cuda.default_generators
            # compute fp32 convolutions in fp32, as products are: torch's default for them is TF32
            torch.backends.cudnn.allow_tf32 = False
        self.path = Path()
        self.script: script.Script | None = None
        self.kernel: str | None = None
        self.model: nn.Module | None = None
        self.inputs: list[Any] = []
        self.storage: list[Tensor] = []  # the input tensors' memory, under tensor objects that the script never gets
        self.given: list[Any] = []  # the inputs of the last call that was not timed, with its own lists and dicts
        self.slots: Slots | None = None  # of timed windows
        self.names: list[str] | None = None  # the inputs' names, where the script gives them by name
        self.kept_state: dict[str, Tensor] = {}  # buffers that a forward changes, as every call finds them
        self.draws = KeptDraws()
        self.stated = False  # whether a timed call's inputs end with the state that it starts from

    def operations(self) -> dict[str, Callable[[Request], Answer]]:
        return {
            "load": self.load,
            "build": self.build,
            "keep_state": self.keep_state_of,
            "get_state": self.get_state,
            "set_inputs": self.set_inputs,
            "get_inputs": self.get_inputs,
            "forward": self.forward,
            "overwrites": self.overwrites,
            "generators": self.generators,
            "slots": self.make_slots,
            "wake": self.wake,
            "window": self.window,
            "release": self.release,
            "adopt": self.adopt,
            "pack_caches": self.pack_caches,
            "unpack_caches": self.unpack_caches,
        }

    def named_tuple(self, kind: named.Kind) -> Any:
        """Return the class in which the script gets named tuples of this kind."""
        return named.class_in(self.script.module if self.script is not None else None, kind)

    def leave(self) -> None:
        """Give back the memory of its slots: another runner follows in this process."""
        if self.slots is not None:
            self.slots.close()
            self.slots = None

    # ------------------------------------------------------------------------------------------------------ loading

    def load(self, request: Request) -> Answer:
        """Load the script at "path" and find its class "class_name"; "kernel", if any, will take over the model's products."""
        self.path = Path(request["path"])
        self.kernel = request.get("kernel")
        sys.path.append(str(self.path.parent))  # at the end, so that files beside the script shadow no module
        self.script = script.load(self.path, request["class_name"])
        return {"device": self.device.type}

    def pack_caches(self, request: Request) -> Answer:
        return {"value": caches.pack(request["limit"])}

    def unpack_caches(self, request: Request) -> Answer:
        """Unpack what a script's build left in another process, before the script is loaded."""
        caches.unpack(request["value"])
        return {}

    def build(self, request: Request) -> Answer:
        """Make the model with the constructor's arguments "init", and give it the reference's "state".

        Where names or shapes differ, the same "seed" before both constructors has to be enough; "unlike" says where. "plain":
        tensors for the model's plain attributes, given if it has all of them; otherwise "lacks" names those that it lacks.
        "given": the names in the state that the model has, and therefore keeps. With "again", the present model's tensors get
        the state's values in place, as from an optimizer: no method or hook of the model's is called.
        """
        given = request["value"]
        if request.get("again") and self.model is not None:
            self._write(given["state"])
            self.keep_state(list(self.kept_state))  # calls begin with the new buffers too
            return {}
        self.model = None
        seed_everything(request["seed"])
        model = self.construct(given["init"])
        unlike = copy_state(model, given["state"])
        names = [name for name, value in given["state"].items() if _shape(held(model, name)) == value.shape]
        model = model.to(self.device)
        lacks = plain.put(model, given.get("plain") or {})
        if self.kernel is not None:
            from .rewrite import rewrite

            model = rewrite(model, self.kernel)
            names = [name for name in names if held(model, name) is not None]
        self.model = model
        self.keep_state(list(self.kept_state))
        return {"unlike": unlike, "lacks": lacks, "given": names}

    def _write(self, state: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, value in state.items():
                own = held(self.model, name) if self.model is not None else None
                if own is not None and own.shape == value.shape:
                    own.copy_(value)

    def construct(self, init: list[Any] | dict[str, Any]) -> nn.Module:
        assert self.script is not None
        with self.draws:
            model = self.script.model(**init) if isinstance(init, dict) else self.script.model(*init)
        if not isinstance(model, nn.Module):
            raise BuildError(f"{self.script.model.__name__}(...) made a {type(model).__name__}, not an nn.Module")
        return model

    # ------------------------------------------------------------------------------------------------------ state

    def keep_state_of(self, request: Request) -> Answer:
        """From now on every call that is given no state of its own finds the buffers "names" as they are now."""
        self.keep_state(list(request["names"]))
        return {}

    def get_state(self, request: Request) -> Answer:
        """The kept buffers as the last call left them."""
        return {"value": {name: own.detach() for name, own, _ in self._kept()}}

    def keep_state(self, names: list[str]) -> None:
        model = self.model
        own = {name: t for name in names if model is not None and (t := held(model, name)) is not None}
        self.kept_state = {name: _clone(t.detach()) for name, t in own.items()}

    def restore_state(self, state: dict[str, Tensor] | None = None) -> None:
        """Give the kept buffers the values that every call finds, or those of `state` where they are of the same shape."""
        together: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}  # a call may begin with restoring hundreds
        for name, own, value in self._kept():
            given = state.get(name) if state is not None else None
            source, target = value if given is None or given.shape != own.shape else given, own.detach()
            # Buffers can be copied by one call if they are of one type, and not lazily conjugated or negated.
            if source.dtype is target.dtype and not (target.is_conj() or target.is_neg()):
                targets, sources = together.setdefault((target.dtype, target.device), ([], []))
                targets.append(target)
                sources.append(source)
            else:
                target.copy_(source)
        for targets, sources in together.values():
            _copy_all(targets, sources)

    def changed_state(self) -> list[str]:
        """Return the names of the kept buffers that are no longer as they were."""
        return [name for name, own, value in self._kept() if not equal_bits(own, value)]

    def _kept(self) -> list[tuple[str, Tensor, Tensor]]:
        """Return, for each kept buffer that the model still has, its name, itself, and the value that every call finds in it."""
        if self.model is None:
            return []
        found = [(name, held(self.model, name), value) for name, value in self.kept_state.items()]
        return [(name, own, value) for name, own, value in found if own is not None]

    # ------------------------------------------------------------------------------------------------------ inputs

    def set_inputs(self, request: Request) -> Answer:
        self.names = request.get("names")
        self.place(list(request["value"]))
        return {}

    def get_inputs(self, request: Request) -> Answer:
        """The inputs as the last call left them, to see whether the script wrote to them."""
        return {"value": self.given or self.inputs}

    def place(self, values: list[Any]) -> None:
        """Make `values` the inputs. If they fit into the present input tensors, these get the new data, and keep their
        objects and addresses, so that a result remembered by either is a wrong result."""
        self.given = []
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
            placed = _unshared([t.to(self.device) if isinstance(t, Tensor) else t for t in new])
            self.inputs = pytree.tree_unflatten(placed, spec)
            self.storage = [t.detach() for t in placed if isinstance(t, Tensor)]

    # ------------------------------------------------------------------------------------------------------ running

    def call(self, inputs: list[Any]) -> Any:
        assert self.model is not None
        given = [wire.anew(value) for value in inputs]
        if inputs is self.inputs:
            self.given = given
        if self.names is not None:
            return self.model(**dict(zip(self.names, given, strict=True)))
        return self.model(*given)

    def copy(self, output: Any) -> Any:
        """Return a copy of the output, made on the current stream right after the call."""
        for path, leaf in wire.leaves(output):
            if isinstance(leaf, Tensor) and leaf.is_nested:
                raise wire.Unsupported("a nested tensor", leaf, path.removeprefix("output"))
            if isinstance(leaf, Tensor) and type(leaf) not in (Tensor, nn.Parameter):
                raise TypeError(
                    f"{path} is a {type(leaf).__name__}: a plain torch.Tensor is needed, computed when it returns"
                )
        return pytree.tree_map_only(Tensor, lambda t: _clone(t.detach()), output)

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            _synchronize(self.device)

    def forward(self, request: Request) -> Answer:
        """Call the model once. Answer the output or, where it has more than "limit" bytes, its tensors' shapes as "too_large".

        With "on", state and random numbers go on from where the last call has left them."""
        if not request.get("on"):
            self.restore_state()
            self.synchronize()
            seed_everything(request["seed"])
        output = self.copy(self.call(self.inputs))
        self.synchronize()
        tensors = [leaf for _, leaf in wire.leaves(output) if isinstance(leaf, Tensor)]
        answer: Answer = {"devices": sorted({t.device.type for t in tensors})}
        if set(answer["devices"]) - {self.device.type}:
            return answer  # on meta, say, an output has no data to send: the tool says where it is
        limit = request.get("limit")
        if limit is not None and sum(t.numel() * t.element_size() for t in tensors) > limit:
            return {**answer, "too_large": [[list(t.shape), str(t.dtype)] for t in tensors[:16]]}
        return {**answer, "value": output}

    def overwrites(self, request: Request) -> Answer:
        """Answer whether a call returns, or changes, memory that a caller may still hold as the output of the call before
        ("overwrites")."""
        self.restore_state()
        seed_everything(request["seed"])
        first = self.call(self.inputs)
        before = [_clone(t) for t in _plain(first)]
        memory = _memory(first).keys() & _memory(self.call(self.inputs)).keys()
        self.synchronize()
        changed = any(not equal_bits(t.detach(), was) for t, was in zip(_plain(first), before, strict=True))
        self.restore_state()
        return {"overwrites": bool(memory) or changed}

    def generators(self, request: Request) -> Answer:
        """Answer a digest of the states of the generators that a model may draw from."""
        return {"generators": _sha256(repr(random_states(self.device)).encode()).hexdigest()}

    # ------------------------------------------------------------------------------------------------------ windows

    def make_slots(self, request: Request) -> Answer:
        """Make slots for timed windows as the request describes them (see slots.py), in place of any earlier ones."""
        if self.slots is not None:
            self.slots.close()
        # The other timed processes would lack the memory that earlier calls have left reserved here.
        handover.free(self.device)
        self.slots = Slots(request, self.device, seed_everything)
        self.names, self.stated = request["names"], bool(request.get("stated"))
        return {}

    def wake(self, request: Request) -> Answer:
        """Do next to nothing: a process that has waited for long takes longer to begin the next request."""
        if self.device.type == "cuda":
            torch.zeros(1, device=self.device)
            torch.cuda.synchronize(self.device)
        return {}

    def window(self, request: Request) -> Answer:
        """Call the model on slots; see Slots.window."""
        assert self.slots is not None
        return self.slots.window(request, self._timed_call)

    def release(self, request: Request) -> Answer:
        assert self.slots is not None
        self.slots.release()
        return {}

    def adopt(self, request: Request) -> Answer:
        """Make copies of the first slot's inputs, which come as for a window, the inputs; make its state what calls find."""
        assert self.slots is not None
        inputs = self.slots.first_inputs(request)
        if self.stated:
            *inputs, state = inputs
            self.restore_state(state)
            self.keep_state(list(self.kept_state))
        self.place(pytree.tree_map_only(Tensor, _clone, inputs))
        self.slots.release()
        return {}

    def _timed_call(self, inputs: list[Any]) -> Any:
        state = None
        if self.stated:
            *inputs, state = inputs
        self.restore_state(state)
        return self.call(inputs)


def _unshared(values: list[Any]) -> list[Any]:
    """Return the same values with memory of its own for each tensor.

    A tensor that get_inputs() gives twice is two arguments, which get different data later."""
    taken: set[int] = set()
    found = []
    for value in values:
        if isinstance(value, Tensor) and value.layout is torch.strided:
            where = value.untyped_storage().data_ptr()
            if where in taken:
                value = _clone(value.detach()).requires_grad_(value.requires_grad)
            taken.add(where)
        found.append(value)
    return found


def _alike(t: Tensor, stored: Tensor) -> bool:
    """Return whether `t` can be copied into the memory of `stored` as it is."""
    return t.shape == stored.shape and t.dtype == stored.dtype and t.stride() == stored.stride() and _dense(stored)


def _dense(t: Tensor) -> bool:
    """Return whether the entries fill a contiguous piece of memory, in whatever order of axes."""
    strides = t.stride()
    order = sorted(range(t.dim()), key=lambda axis: (-strides[axis], axis))
    return t.permute(order).is_contiguous()


def held(model: nn.Module, name: str) -> Tensor | None:
    """Return the buffer or parameter of this name; None where there is no such plain tensor.

    It is read from the dictionaries that modules keep them in: named_buffers() is a method, which a script may override."""
    *path, last = name.split(".")
    module: Any = model
    for part in path:
        module = _entry(module, "_modules", part)
    value = _entry(module, "_buffers", last)
    value = _entry(module, "_parameters", last) if value is None else value
    return value if type(value) in PLAIN else None


def _entry(module: Any, kind: str, name: str) -> Any:
    """Return what a module keeps under this name in "_buffers", "_parameters" or "_modules"; call no method of the script."""
    if not isinstance(module, nn.Module):
        return None
    entries = _dict_of(module, "__dict__").get(kind)
    if isinstance(entries, dict):
        return _get(entries, name)
    return entries[name] if type(entries) in SCRIPTED and name in entries else None


def _shape(t: Tensor | None) -> torch.Size | None:
    return None if t is None else t.shape


def _plain(output: Any) -> list[Tensor]:
    """Return an output's plain tensors."""
    return [leaf for _, leaf in wire.leaves(output) if type(leaf) in PLAIN]


def _memory(output: Any) -> dict[int, Any]:
    """Return the memory of an output's tensors by its address; it stays allocated as long as the result is kept."""
    found = [t.untyped_storage() for t in _plain(output)]
    return {memory.data_ptr(): memory for memory in found if memory.nbytes()}


def copy_state(model: nn.Module, state: dict[str, Tensor]) -> list[str]:
    """Give `model` the reference's parameters and buffers where names and shapes fit. Return what does not fit, in words.

    Lazy ones, which have no shape yet, take what they are given."""
    own = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    fits = {
        name: value
        for name, value in state.items()
        if name in own and (is_lazy(own[name]) or own[name].shape == value.shape)
    }
    model.load_state_dict(fits, strict=False)
    problems = [f"it has no {name!r} {tuple(value.shape)}" for name, value in state.items() if name not in own]
    problems += [
        f"its {name!r} is {tuple(own[name].shape)}, the reference's is {tuple(value.shape)}"
        for name, value in state.items()
        if name in own and name not in fits
    ]
    return problems


def plain_attributes(model: nn.Module) -> dict[str, Any]:
    """Return numbers, strings and tensors that the model keeps as plain attributes; for a tensor its identity and its version,
    which a write changes."""
    found: dict[str, Any] = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if not name.startswith("_") and isinstance(value, (bool, int, float, str, Tensor)):
                where = f"{path}.{name}" if path else name
                found[where] = (id(value), value._version) if isinstance(value, Tensor) else value
    return found


def equal_bits(a: Tensor, b: Tensor) -> bool:
    return torch.equal(memory.bits_of(a), memory.bits_of(b))
