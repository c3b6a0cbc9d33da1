"""The reference's process: the script, the model and its state, its inputs, and its results."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from .. import machine
from ..exchange import handover, wire
from ..exchange.stacked import Stack
from ..judging import contractions, exact
from ..judging.bounds import U32
from ..judging.operator_mode import base_name
from ..judging.places import Guard
from ..worker.runner import (
    Answer,
    BuildError,
    Request,
    ScriptRunner,
    equal_bits,
    kept_generators,
    seed_everything,
)
from .examiner import Examiner
from .float64 import Float64
from .freedom import Freedom
from .lines import Lines
from .varied import Varied

MOST_YIELDED = 1000  # the most values that a generator in the place of a list may give
KEPT_INPUTS = 2 << 30  # the most bytes of inputs, and of parameters, of which this process keeps a copy to restore


class ReferenceRunner(ScriptRunner):
    """The reference's model, and the truth about it."""

    def __init__(self) -> None:
        super().__init__()
        self.contraction: contractions.Contraction | None = None
        self.last: Any = None  # the output of the last forward
        self.seconds = 0.0  # how long the last forward took
        # a seed, and the answer of `forward` to the present inputs with this seed
        self.ready: tuple[int, Answer] | None = None
        # the flat inputs before NaN and Inf were put in, and their tree; without inputs if these are large
        self.usual: tuple[list[Any], Any] = ([], None)
        self.recorder: exact.Recorder | None = None  # what the model draws, and the types that it computes in
        self.u = U32  # the coarsest unit roundoff that the model computes in
        # the same for each output, without casts that are made only to return it
        self.inner_u: float | list[float] = U32
        self.lengths: list[int] = []  # lengths of the sums in the model's last float64 run
        self.products = 0  # number of products in that run
        self.usual_state: dict[str, Tensor] = {}  # the buffers that calls change, as every judged call finds them
        self.changing: list[str] = []  # names of the buffers that a forward changes
        self.kept: list[Any] | None = None  # a copy of the inputs that variations start from, if it is kept here
        self.placed = False  # whether other inputs have been placed since that copy was made or restored
        self.own_tensors: dict[str, Tensor] = {}  # parameters and buffers before a variation changed them
        self.float64, self.examiner = Float64(self), Examiner(self)
        self.varied, self.freedom = Varied(self), Freedom(self)
        self.lines = Lines("", "")

    def operations(self) -> dict[str, Callable[[Request], Answer]]:
        return {
            **super().operations(),
            "machine": self.machine,
            "keep_changed_state": self.keep_changed_state,
            "baseline": self.run_as_baseline,
            "construct": self.construct_from_script,
            "make_inputs": self.make_inputs,
            "keep_inputs": self.keep_inputs,
            "restore_inputs": self.restore_inputs,
            "restore_parameters": self.restore_parameters,
            "make_more": self.make_more,
            "let_go": self.let_go,
            "leave_states": self.leave_states,
            "truth": self.float64.truth,
            "in_order": self.float64.in_order,
            "examine": self.examiner.examine,
            "gauge": self.float64.gauge,
            "spoiled": self.float64.spoiled,
            "probe": self.varied.probe,
            "coarse": self.float64.coarse,
            "rare_seeds": self.examiner.rare_seeds,
            "vary": self.varied.vary,
            "evaluate": self.evaluate,
            "free": self.freedom.free,
            "compared": self.compared,
            "never_run": self.never_run,
        }

    def machine(self, request: Request) -> Answer:
        return {"machine": machine.describe(self.device)}

    def load(self, request: Request) -> Answer:
        answer = super().load(request)
        assert self.script is not None
        self.script.function("get_inputs")  # an error now rather than after the candidate was compiled
        self.lines = Lines(self.path.read_text(encoding="utf-8", errors="replace"), str(self.path))
        return answer

    def compared(self, request: Request) -> Answer:
        """Note that the last call's output was compared with the candidate's."""
        self.lines.keep()
        return {}

    def evaluate(self, request: Request) -> Answer:
        """Put the model into evaluation. Nothing but building it anew undoes that: a script's own train() may do anything."""
        assert self.model is not None
        self.model.eval()
        self.ready = None
        return {}

    def never_run(self, request: Request) -> Answer:
        """Return the first and last lines of statements in the script's functions that no compared call has run."""
        return {"lines": self.lines.never_run()}

    def construct_from_script(self, request: Request) -> Answer:
        """Make the model with the script's own get_init_inputs(), and return those and the model's state."""
        assert self.script is not None
        seed_everything(request["seed"])
        init: Any = []
        if hasattr(self.script.module, "get_init_inputs"):
            init = _listed(self.script.function("get_init_inputs")(), "get_init_inputs")
        init = init if isinstance(init, dict) else _as_list(init, "get_init_inputs")
        seed_everything(request["seed"])
        self.model = self.construct(init).to(self.device)
        if any(is_lazy(t) for t in (*self.model.parameters(), *self.model.buffers())):  # made by a first forward
            self.make_inputs({"seed": request["seed"]})
            self.call(self.inputs)
        buffers = [name for name, _ in self.model.named_buffers()]
        self.keep_state(buffers)
        return {"value": {"init": init, "state": dict(self.model.state_dict())}, "buffers": buffers}

    def run_as_baseline(self, request: Request) -> Answer:
        """Run the model as "how" says from now on: "compile" by torch.compile, "tf32" with products and convolutions in TF32."""
        assert self.model is not None
        if request["how"] == "compile":
            self.model.compile(dynamic=False)
        elif self.device.type != "cuda":
            raise BuildError("TF32 is a GPU's: there is no such baseline on a CPU")
        else:
            torch.set_float32_matmul_precision("high")
            torch.backends.cudnn.allow_tf32 = True
        return {}

    def keep_changed_state(self, request: Request) -> Answer:
        """From now on, let calls find the buffers that the last forward changed as they were before it; keep no other buffers."""
        changed = self.changed_state()
        # `adopt` has replaced these values.
        self.kept_state |= {name: t for name, t in self.usual_state.items() if name in self.kept_state}
        self.restore_state()
        self.keep_state(changed)
        self.usual_state = dict(self.kept_state)
        return {"buffers": changed}

    def leave_states(self, request: Request) -> Answer:
        """Return the states in which calls in a row leave the buffers that they change. The first call starts from the usual
        state, and each gets the script's inputs for the next of "seeds". A state that is not finite or has other buffers ends
        the row and is left out. The states come stacked, with their "layout"."""
        self.restore_state(self.usual_state)
        found = Stack()
        for seed in request["seeds"]:
            given = self.given_for(seed)
            seed_everything(seed)
            self.call(given)
            if not found.add({name: own for name, own, _ in self._kept()}):
                break
        self.restore_state()
        return {"value": found.tensors, "layout": found.layout}

    def make_inputs(self, request: Request) -> Answer:
        """Make the script's own inputs for a seed. They become the reference's, and are returned for the candidate.

        They are made on the model's device where the script's own calls allow it. A dict holds arguments by name.
        """
        self.kept = None
        made = self.script_inputs(request["seed"])
        self.names = [str(name) for name in made] if isinstance(made, dict) else None
        self.place(_values(made))
        return {"value": self.inputs, "names": self.names}

    def keep_inputs(self, request: Request) -> Answer:
        """Keep a copy of the present inputs for `restore_inputs`; nothing is "kept" if they are larger than KEPT_INPUTS."""
        self.kept = None
        if wire.bytes_of(self.inputs) <= KEPT_INPUTS:
            self.kept = pytree.tree_map_only(Tensor, torch.clone, self.inputs)
        self.placed = False
        return {"kept": self.kept is not None}

    def restore_inputs(self, request: Request) -> Answer:
        """Make the kept inputs the present ones again, if they are still "kept"."""
        if self.kept is not None and self.placed:
            # A clone, since `place` may make its argument the inputs.
            self.place(pytree.tree_map_only(Tensor, torch.clone, self.kept))
            self.placed = False
        return {"kept": self.kept is not None}

    def keep_parameters(self) -> None:
        """Keep a copy of all parameters and buffers, as a call finds them, for `restore_parameters`; none if they are larger
        than KEPT_INPUTS."""
        self.restore_state()
        tensors = self._tensors()
        small = wire.bytes_of(list(tensors.values())) <= KEPT_INPUTS
        self.own_tensors = {}
        if small and all(t.layout is torch.strided for t in tensors.values()):
            self.own_tensors = {name: t.clone() for name, t in tensors.items()}

    def restore_parameters(self, request: Request) -> Answer:
        """Give parameters and buffers the values that they had before the last variation changed them, if these were "kept"."""
        own, self.own_tensors = self.own_tensors, {}
        present = self._tensors()
        if not own or own.keys() != present.keys():
            return {"kept": False}
        for name, t in present.items():
            # Only where it differs: an expanded buffer, say, has no memory of its own that could be written to.
            if not equal_bits(t, own[name]):
                t.copy_(own[name])
        self.last = self.ready = None
        self.keep_state(list(self.kept_state))
        return {"kept": True}

    def _tensors(self) -> dict[str, Tensor]:
        """The model's parameters and buffers."""
        assert self.model is not None
        found = itertools.chain(self.model.named_parameters(), self.model.named_buffers())
        return {name: t.detach() for name, t in found}

    def let_go(self, request: Request) -> Answer:
        """Give the memory back that judging has left here: inputs, the last output, and what torch keeps."""
        self.place([])
        handover.free(self.device)
        return {}

    def make_slots(self, request: Request) -> Answer:
        self.kept, self.own_tensors = None, {}  # nothing is varied any more
        return super().make_slots(request)

    def make_more(self, request: Request) -> Answer:
        """Return the script's inputs for each of "seeds", without making them anybody's inputs. Each tensor becomes a matrix with
        a row for each seed, whose entries are in the order of memory that "orders" gives. Seeds whose tensors have other shapes
        or types than those of the first seed are left out."""
        made: list[list[Tensor]] = []
        for seed in request["seeds"]:
            of = self.script_inputs(seed)
            made.append([t for _, t in wire.leaves(_values(of)) if isinstance(t, Tensor)])
        like = [[(t.shape, t.dtype) for t in one] for one in made]
        made = [
            one
            for one, of_it in zip(made, like, strict=True)
            if of_it == like[0] and len(one) == len(request["orders"])
        ]
        rows = [
            torch.stack([t.detach().permute(order).reshape(-1) for t in of_one]).to(self.device)
            for of_one, order in zip(zip(*made, strict=True), request["orders"] if made else [], strict=True)
            if all(t.dim() == len(order) for t in of_one)
        ]
        return {"value": rows}

    def given_for(self, seed: int) -> list[Any]:
        """Return the script's inputs for a seed, on the model's device, for a call that leaves the present inputs in place."""
        return [t.to(self.device) if isinstance(t, Tensor) else t for t in _values(self.script_inputs(seed))]

    def script_inputs(self, seed: int) -> Any:
        """Return what get_inputs() makes for a seed. Generators are left as they were: calls in a row go on drawing from where
        the last one left them."""
        assert self.script is not None
        make = self.script.function("get_inputs")
        with kept_generators():
            seed_everything(seed)
            try:
                with torch.device(self.device) if self.device.type == "cuda" else contextlib.nullcontext():
                    return _listed(make(), "get_inputs")
            except Exception:
                if self.device.type == "cpu":
                    raise
                seed_everything(seed)
                return _listed(make(), "get_inputs")

    def forward(self, request: Request) -> Answer:
        """Call the model as any runner does, and say how many "seconds" that took and which inputs it "wrote" to. "guarded": the
        inputs may hold indices out of bounds, which would end a GPU's context (places.py). An answer that `Varied` has found for
        these inputs is not computed again."""
        ready, self.ready = self.ready, None
        if ready is not None and ready[0] == request["seed"] and not request.get("on"):
            self.last = ready[1].get("value")
            return ready[1]
        self.last = None
        given = {path: (leaf, getattr(leaf, "_version", 0)) for path, leaf in wire.leaves(self.inputs, "input")}
        guarded = bool(request.get("guarded")) and self.device.type == "cuda"
        begin = time.perf_counter()
        with Guard() if guarded else contextlib.nullcontext(), self.lines.watch():
            answer = super().forward(request)
        self.seconds = time.perf_counter() - begin
        self.last = answer.get("value")
        left = dict(wire.leaves(self.given, "input"))
        wrote = [path for path in left if path not in given]
        for path, (leaf, version) in given.items():
            if path not in left or left[path] is not leaf or getattr(leaf, "_version", 0) != version:
                wrote.append(path)
        return {**answer, "wrote": wrote, "seconds": self.seconds}

    def build(self, request: Request) -> Answer:
        self.ready = None
        return super().build(request)

    def place(self, values: list[Any]) -> None:
        self.last = self.ready = None
        self.placed = True
        super().place(values)

    def operators(self) -> set[str]:
        """Return the names of the model's operators, without the library's name, and without the underscore of in-place ones."""
        return {base_name(name) for name in (self.recorder.names if self.recorder is not None else ())}

    def traced(self) -> tuple[contractions.Contraction, list[Any]]:
        """Return the contraction that the model is, and the inputs of its graph."""
        assert self.contraction is not None
        assert self.model is not None
        return self.contraction, contractions.flat_inputs(self.model, self.inputs)[0]

    def with_memory(self, make: Callable[[], Answer]) -> Answer:
        """Return what `make` answers, or "why_not" and "short" if the device has no memory for it."""
        try:
            return make()
        except torch.OutOfMemoryError as error:
            said = str(error).split(". ")[0]
        self.last = self.ready = None
        self.restore_state()
        self.free_memory()  # what the exception's traceback held is free only now
        return {"why_not": said, "short": True}

    def free_memory(self) -> None:
        handover.make_room(self.device)


def _listed(made: Any, function: str) -> Any:
    """Return what a script's function returned, a generator as a tuple: it runs now, seeded as the function is.

    Raises BuildError if it does not end after MOST_YIELDED values."""
    if not isinstance(made, Generator):
        return made
    found = tuple(itertools.islice(made, MOST_YIELDED + 1))
    if len(found) > MOST_YIELDED:
        raise BuildError(
            f"{function}() returned a generator, not a list, and it yields more than {MOST_YIELDED} values"
        )
    return found


def _values(made: Any) -> list[Any]:
    """Return the arguments that get_inputs() made, by name or in order, as a list."""
    return list(made.values()) if isinstance(made, dict) else _as_list(made, "get_inputs")


def _as_list(made: Any, function: str) -> list[Any]:
    """Return what a script's function returned as a list; a tensor, number or text by itself becomes a list of one."""
    if isinstance(made, (list, tuple)):
        return list(made)
    if isinstance(made, (Tensor, int, float, str)):
        return [made]
    raise BuildError(f"{function}() returned a {type(made).__name__}, not a list")
