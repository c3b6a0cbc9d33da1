"""The isolated run: loads one script and does what the parent asks, until the parent closes the channel.

Started by process.py as `python -I -c ... FD PARENT`. The reference and the candidate each get such a process; only the
reference's is asked for truth (`oracle`, `gauge`, `spoiled`), inputs and probes. Whatever the script raises is answered
as an error; what kills the process, the parent sees.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from . import build_errors, oracle, probes, protocol, script
from .clock import Clock

_clone = torch.ops.aten.clone.default
_exit = os._exit
_getpid = os.getpid
SHORT = 2000


class BuildError(Exception):
    """The script's model cannot be made or given the reference's parameters."""


def seed_everything(seed: int) -> None:
    import numpy as np

    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - the generator that a script's get_inputs may use


class Runner:
    """What one worker holds: the script, its model, the inputs, and the answers to the parent's requests."""

    def __init__(self) -> None:
        self.device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        self.clock = Clock(self.device)
        self.path = Path()
        self.script: script.Script | None = None
        self.kernel: str | None = None
        self.model: nn.Module | None = None
        self.inputs: list[Any] = []
        self.held: list[Tensor] = []  # aliases of the input tensors: the same storage, other objects
        self.base: list[Tensor] = []  # what the inputs hold before a shift
        self.contraction: oracle.Contraction | None = None
        self.kept: Any = None
        self.last: Any = None

    # ------------------------------------------------------------------------------------------------------ loading

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        self.path = Path(request["path"])
        self.kernel = request.get("kernel")
        sys.path.append(str(self.path.parent))  # last, so that a script's neighbours shadow nothing
        self.script = script.load(self.path, request["class"])
        if request["class"] == "Model" and self.kernel is None:
            for name in ("get_inputs", "get_init_inputs"):
                self.script.function(name)
        return {"device": str(self.device)}

    def build(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make the model; `value` None makes it from the script's own get_init_inputs and returns those and its state."""
        assert self.script is not None
        given = request["value"]
        seed_everything(request.get("seed", 0))
        self.model = None
        init = list(self.script.function("get_init_inputs")()) if given is None else list(given["init"])
        seed_everything(request.get("seed", 0))
        model = self.script.model(*init)
        if not isinstance(model, nn.Module):
            raise BuildError(f"{self.script.model.__name__}(...) made a {type(model).__name__}, not an nn.Module")
        if given is not None:
            copy_state(model, given["state"])
        model = model.to(self.device)
        if self.kernel is not None:
            from .candidate import rewrite

            model = rewrite(model, self.kernel)
        self.model = model
        return {"value": {"init": init, "state": dict(model.state_dict())}} if given is None else {}

    # ------------------------------------------------------------------------------------------------------ inputs

    def make_inputs(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.script is not None
        seed_everything(request["seed"])
        made = self.script.function("get_inputs")()
        if not isinstance(made, (list, tuple)):
            raise BuildError(f"get_inputs() returned a {type(made).__name__}, not a list")
        self._place(list(made))
        return {"value": self.inputs}

    def set_inputs(self, request: dict[str, Any]) -> dict[str, Any]:
        self._place(list(request["value"]))
        return {}

    def _place(self, values: list[Any]) -> None:
        """Put `values` into the tensors that hold the inputs now, if they fit: new data, the same objects and addresses."""
        new, spec = pytree.tree_flatten(values)
        old, old_spec = pytree.tree_flatten(self.inputs)
        tensors = [t for t in new if isinstance(t, Tensor)]
        same = spec == old_spec and len(tensors) == len(self.held)
        if same and all(_alike(t, held) for t, held in zip(tensors, self.held, strict=True)):
            for t, held in zip(tensors, self.held, strict=True):
                held.copy_(t)
            kept = iter([x for x in old if isinstance(x, Tensor)])
            self.inputs = pytree.tree_unflatten([next(kept) if isinstance(x, Tensor) else x for x in new], spec)
        else:
            self.held, self.base, self.inputs = [], [], []
            placed = [t.to(self.device) if isinstance(t, Tensor) else t for t in new]
            self.inputs = pytree.tree_unflatten(placed, spec)
            self.held = [t.detach() for t in placed if isinstance(t, Tensor)]
        if len(self.base) == len(self.held):
            for base, held in zip(self.base, self.held, strict=True):
                base.copy_(held)
        else:
            self.base = [_clone(held) for held in self.held]

    def fetch(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"value": self.inputs}

    def refill(self, request: dict[str, Any]) -> dict[str, Any]:
        self._shift(request["shift"])
        self.clock.synchronize()
        return {}

    def _shift(self, shift: int) -> None:
        """Fresh data in the same storage: the base values, each floating-point tensor rolled by `shift` entries."""
        for held, base in zip(self.held, self.base, strict=True):
            if not held.is_floating_point() or held.numel() < 2 or not _dense(held):
                held.copy_(base)
                continue
            flat, source = _memory(held), _memory(base)
            by = shift % flat.numel()
            flat[by:].copy_(source[: flat.numel() - by])
            flat[:by].copy_(source[flat.numel() - by :])

    # ------------------------------------------------------------------------------------------------------ running

    def _call(self) -> Any:
        assert self.model is not None
        return self.model(*self.inputs)

    def _snapshot(self, output: Any) -> Any:
        """A copy of the output, made at once on the current stream."""
        for path, leaf in protocol.leaves(output):
            if isinstance(leaf, Tensor) and type(leaf) not in (Tensor, nn.Parameter):
                raise TypeError(
                    f"{path} is a {type(leaf).__name__}: a plain torch.Tensor is needed, computed when it returns"
                )
        return pytree.tree_map_only(Tensor, lambda t: _clone(t.detach()), output)

    def _answer(self, output: Any, limit: int | None) -> dict[str, Any]:
        tensors = [leaf for _, leaf in protocol.leaves(output) if isinstance(leaf, Tensor)]
        devices = sorted({t.device.type for t in tensors})
        if limit is not None and sum(t.numel() * t.element_size() for t in tensors) > limit:
            return {"devices": devices, "too_large": [[list(t.shape), str(t.dtype)] for t in tensors[:16]]}
        return {"devices": devices, "value": output}

    def forward(self, request: dict[str, Any]) -> dict[str, Any]:
        seed_everything(request["seed"])
        self.clock.synchronize()
        self.last = None
        times, kept = self.clock.measure([None], self._shift, self._call, self._snapshot, 0, False)
        self.last = kept if request.get("limit") is None else None
        return {**self._answer(kept, request.get("limit")), "seconds": times[0]}

    def time(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time calls. Two answers: the times, and then the output of call number `keep`."""
        seed_everything(request["seed"])
        times, self.kept = self.clock.measure(
            request["calls"], self._shift, self._call, self._snapshot, request["keep"], request["flush"]
        )
        return {"times": times, "then": True}

    # ------------------------------------------------------------------------------------------------------ truth

    def oracle(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.model is not None
        seed_everything(request["seed"])
        try:
            output = self._snapshot(oracle.run_in_double(self.model, self.inputs))
        finally:
            self._tidy()
        return {"value": output}

    def examine(self, request: dict[str, Any]) -> dict[str, Any]:
        """Whether the model is a contraction, and the lengths of its sums; asked for behind `forward`."""
        assert self.model is not None
        try:
            values, names = oracle.flat_inputs(self.model, self.inputs)
            graph = oracle.trace(self.model, self.inputs)
        except Exception as error:
            return {"why_not": f"it cannot be traced ({type(error).__name__})", "lengths": []}
        lengths = oracle.reduction_lengths(graph.graph)
        try:
            self.contraction = oracle.find_contraction(graph, names)
            right = [leaf for _, leaf in protocol.leaves(self.last)]
            if len(right) != 1 or not _close(self.contraction.run(values), right[0]):
                raise oracle.NotAContraction("its trace computes something else")
        except oracle.NotAContraction as error:
            self.contraction = None
            return {"why_not": str(error), "lengths": lengths}
        return {"contraction": self.contraction.describe(), "lengths": lengths}

    def _flat(self) -> list[Any]:
        assert self.model is not None
        return oracle.flat_inputs(self.model, self.inputs)[0]

    def gauge(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.contraction is not None
        gauge = self.contraction.gauge(self._flat()).cpu()
        self._tidy()
        return {"value": gauge}

    def spoiled(self, request: dict[str, Any]) -> dict[str, Any]:
        """The product computed wrongly on purpose, for the self-test."""
        assert self.contraction is not None
        if request["how"] == "tf32":
            output = self.contraction.run(self._flat(), oracle.tf32, oracle.tf32)
        else:
            output = self.contraction.run(self._flat(), oracle.half_of_k)
        return {"value": output.cpu()}

    def probe(self, request: dict[str, Any]) -> dict[str, Any]:
        """Fill inputs and parameters for a probe, and return them."""
        assert self.contraction is not None
        assert self.model is not None
        flat = self._flat()
        try:
            filled = probes.fill(probes.BY_NAME[request["name"]], self.contraction, flat, request["seed"])
        except probes.CannotProbe as error:
            return {"why_not": str(error)}
        count = len(flat) - len(pytree.tree_leaves(self.inputs))
        for old, new in zip(flat[:count], filled[:count], strict=True):
            old.detach().copy_(new)
        spec = pytree.tree_flatten(self.inputs)[1]
        self._place(pytree.tree_unflatten(filled[count:], spec))
        self._tidy()
        return {"value": {"inputs": self.inputs, "state": dict(self.model.state_dict())}}

    def _tidy(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def environment(self, request: dict[str, Any]) -> dict[str, Any]:
        from .environment import describe

        return {"environment": describe(self.device)}

    def operations(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        return {
            "load": self.load,
            "build": self.build,
            "make_inputs": self.make_inputs,
            "set_inputs": self.set_inputs,
            "fetch": self.fetch,
            "refill": self.refill,
            "forward": self.forward,
            "time": self.time,
            "oracle": self.oracle,
            "examine": self.examine,
            "gauge": self.gauge,
            "spoiled": self.spoiled,
            "probe": self.probe,
            "environment": self.environment,
        }


def _alike(t: Tensor, held: Tensor) -> bool:
    return t.shape == held.shape and t.dtype == held.dtype and t.stride() == held.stride() and _dense(held)


def _close(a: Tensor, b: Tensor) -> bool:
    """Whether two results are of one computation: the same shape, and apart by rounding only."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    largest = float(torch.nan_to_num(b, nan=0.0, posinf=0.0, neginf=0.0).abs().max()) if b.numel() else 0.0
    return not b.numel() or float(torch.nan_to_num(a - b, nan=0.0).abs().max()) <= 1e-2 * largest


def _dense(t: Tensor) -> bool:
    strides = t.stride()
    order = sorted(range(t.dim()), key=lambda axis: (-strides[axis], axis))
    return t.permute(order).is_contiguous()


def _memory(t: Tensor) -> Tensor:
    """A dense tensor as the flat memory it covers."""
    return t.as_strided((t.numel(),), (1,))


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


def describe_error(error: BaseException, path: Path) -> dict[str, Any]:
    """What the parent needs to tell a person about an exception, in plain text."""
    where = script.where_in(path, error)
    explained = build_errors.explain(error)
    tail = traceback.format_exception(error)
    return {
        "type": type(error).__name__,
        "message": (explained.message if explained else build_errors.one_line(error))[:SHORT],
        "hint": (explained.hint if explained else "")[:SHORT],
        "context": (explained.context if explained else "")[:SHORT],
        "built": int(explained is not None or isinstance(error, (BuildError, script.ScriptError, SyntaxError))),
        "script": path.name,
        "line": where[0] if where else None,
        "source": where[1].strip()[:200] if where else None,
        "traceback": "".join(tail)[-4000:],
    }


def serve(channel: protocol.Channel, runner: Runner) -> None:
    operations = runner.operations()
    me = _getpid()
    while True:
        try:
            request, tensors = channel.receive()
        except protocol.Closed:
            return
        nonce = request.get("nonce")
        arrived: list[Tensor] = []
        try:
            request["value"] = protocol.unpack(request.get("value"), tensors)
            del tensors
            with torch.no_grad():
                answer = operations[request["op"]](request)
            packed = {**answer, "nonce": nonce, "value": protocol.pack(answer.get("value"), arrived)}
        except BaseException as error:
            # SystemExit and KeyboardInterrupt too: a script that calls sys.exit() is an answer, not an end.
            arrived = []
            packed = {"nonce": nonce, "value": {"value": None}, "error": describe_error(error, runner.path)}
        if _getpid() != me:
            _exit(0)  # a child that the script forked and let run on
        del request
        answer = {}
        channel.send(packed, arrived)
        if packed.get("then"):
            arrived = []
            kept, runner.kept = runner.kept, None
            channel.send({"nonce": nonce, "value": protocol.pack(kept, arrived)}, arrived)


def confine(parent: int) -> None:
    """Die with the parent, adopt orphans, leave no core file, fill no disk."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    if os.getppid() != parent:
        _exit(1)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 30, 8 << 30))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)


def main(arguments: list[str]) -> None:
    descriptor, parent = int(arguments[0]), int(arguments[1])
    sys.argv[:] = ["mm32-verify-worker"]
    confine(parent)
    sock = socket.socket(fileno=descriptor)
    sock.set_inheritable(False)
    try:
        serve(protocol.Channel(sock), Runner())
    except protocol.Closed:
        pass
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        _exit(0)
