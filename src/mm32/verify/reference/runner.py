"""The reference's model, its inputs, its truth in float64, and its results computed wrongly on purpose."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from .. import machine
from ..exchange import handover, wire
from ..exchange.stacked import Stack
from ..judging import contractions, exact
from ..judging.bounds import U32, Truth
from ..judging.draws import CannotReplay, SingleDraws
from ..judging.flow import PICKS, Label
from ..judging.formats import FORMATS
from ..judging.operator_mode import base_name
from ..judging.places import Guard
from ..judging.rounding import Rounding, round_to
from ..worker.runner import (
    Answer,
    BuildError,
    Request,
    ScriptRunner,
    kept_generators,
    plain_attributes,
    same_bits,
    seed_everything,
    seed_others,
)
from .freedom import Freedom
from .lines import Lines
from .varied import Varied

# The truth is computed for a part of the batch only, 1 / SHARE of it, if a forward in fp32 takes more than SLICE_ABOVE seconds.
SLICE_ABOVE = {"cpu": 1.0, "cuda": 0.05}
SLICE_BYTES = {"cpu": 32 << 20, "cuda": 256 << 20}  # bytes of the output, above which the same is done
SLICE_INPUTS = 1 << 30  # bytes of all inputs, above which it is done however small the output is
KEPT_INPUTS = 2 << 30  # the most bytes of inputs, and of parameters, of which this process keeps a copy to restore
SHARE = 16
SEEDS_TRIED, SEEDS_SECONDS = 20_000, 1.0  # the most seeds and seconds that a search for rare single draws takes
REPEATED = 1_000_003  # distance between the seeds of repeated perturbed runs on the same data
# A model with at least RECURRENT multiplications is taken for a loop over a sequence. If it has exponentials too, it has decays,
# whose products an honest kernel computes as exponentials of differences of sums.
RECURRENT, EXPONENTIALS = 32, {"exp", "exp2"}
# Operators that interpolate between two entries. An honest kernel may compute with their difference, which may be Inf - Inf.
BETWEEN = ("grid_sampler", "upsample", "_upsample", "lerp")


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
            "truth": self.truth,
            "in_order": self.in_order,
            "examine": self.examine,
            "gauge": self.gauge,
            "spoiled": self.spoiled,
            "probe": self.varied.probe,
            "coarse": self.coarse,
            "rare_seeds": self.rare_seeds,
            "vary": self.varied.vary,
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

    def never_run(self, request: Request) -> Answer:
        """Return the first and last lines of statements in the script's functions that no compared call has run."""
        return {"lines": self.lines.never_run()}

    def construct_from_script(self, request: Request) -> Answer:
        """Make the model with the script's own get_init_inputs(), and return those and the model's state."""
        assert self.script is not None
        seed_everything(request["seed"])
        init: Any = []
        if hasattr(self.script.module, "get_init_inputs"):
            init = self.script.function("get_init_inputs")()
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
            given = self._given_for(seed)
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
            if not same_bits(t, own[name]):
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

    def _given_for(self, seed: int) -> list[Any]:
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
                    return make()
            except Exception:
                if self.device.type == "cpu":
                    raise
                seed_everything(seed)
                return make()

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

    def truth(self, request: Request) -> Answer:
        """Return the model's output in float64 for the inputs of the last forward, the lengths of its sums, and how far honest
        rounding may move it ("noise", "flips", "entries", "sizes", "columns"; "state" for its buffers). Where a float64 run takes
        long, the truth covers a part of the batch: "rows" says which. "few" is for data whose sums have few terms: "noise" then
        comes from these terms, and "additions" says how many additions round."""
        assert self.model is not None
        self.restore_state()
        why_not = ""
        try:
            drawn, inputs, right, rows = self._for_float64(request["seed"])
            with _seeded(self.model, request["seed"]):
                found = exact.run(
                    self.model,
                    inputs,
                    drawn,
                    right,
                    self.inner_u,
                    request["seed"] + REPEATED * int(request.get("again", 0)),
                    self.names,
                    self.contraction is None and bool(request.get("noise", True)),
                    bool(request.get("few")),
                )
            if not request.get("few"):
                self.lengths, self.products = found.lengths, found.products
            recurrent = found.multiplications >= RECURRENT
            return {
                "value": {"exact": self.copy(found.output), "rows": rows, "loose": found.loose},
                "lengths": found.lengths,
                "products": found.products,
                "regroups": recurrent or any(name.startswith(BETWEEN) for name in self.operators()),
                "decays": recurrent and bool(self.operators() & EXPONENTIALS),
                "noise": found.noise,
                "unordered": found.unordered,
                "flips": found.flips,
                "steps": found.steps,
                "entries": found.entries,
                "sizes": found.sizes,
                "columns": found.columns,
                "state": found.state if rows is None else {},
                "additions": found.additions,
                "working": self.u,
            }
        except CannotReplay as error:
            why_not = str(error)
        except torch.OutOfMemoryError:
            why_not = "float64 takes more memory than the device has left"
        finally:
            self.restore_state()
            if not why_not:
                self.free_memory()
        self.free_memory()  # what the exception's traceback held is free only now
        raise BuildError(why_not)

    def in_order(self, request: Request) -> Answer:
        """Return the model's output for the inputs of the last forward with its sums made in order, in the "way" asked for
        (in_order.py), for the part of the batch that the truth covers; None where that takes too long."""
        assert self.model is not None
        self.restore_state()
        try:
            drawn, inputs, _, _ = self._for_float64(request["seed"])
            with _seeded(self.model, request["seed"]):
                found = exact.in_order(self.model, inputs, drawn, request["way"], self.names)
            return {"value": self.copy(found)}
        except (CannotReplay, torch.OutOfMemoryError):
            return {"value": None}
        finally:
            self.restore_state()
            self.free_memory()

    def _for_float64(self, seed: int) -> tuple[list[Any], list[Any], Any, Tensor | None]:
        """Return what a float64 run needs: the random numbers that the model draws, and the inputs, the fp32 output and the rows
        of `_part`. Raises CannotReplay."""
        drawn = self.drawn(seed)
        if self.last is None:  # the inputs have changed since the last forward
            self.forward({"seed": seed})
            self.restore_state()
        return (drawn, *self._part(seed))

    def drawn(self, seed: int) -> list[Any]:
        """Return the random numbers that the model draws with this seed. Raises CannotReplay."""
        assert self.model is not None
        if self.recorder is not None and not self.recorder.drawn:
            return []
        seed_everything(seed)
        recorder, _ = exact.record(self.model, self.inputs, self.names)
        if recorder.opaque:
            raise CannotReplay(f"it draws random numbers inside of {recorder.opaque}")
        return recorder.drawn

    def _part(self, seed: int) -> tuple[list[Any], Any, Tensor | None]:
        """Return the inputs and the fp32 output that the truth is computed from, and which rows of the batch these are: None for
        all."""
        assert self.model is not None
        outputs = [leaf for _, leaf in wire.leaves(self.last) if isinstance(leaf, Tensor)]
        size = sum(t.numel() * t.element_size() for t in outputs)
        given = sum(t.numel() * t.element_size() for t in pytree.tree_leaves(self.inputs) if isinstance(t, Tensor))
        long = self.seconds > SLICE_ABOVE[self.device.type] or size > SLICE_BYTES[self.device.type]
        long = long or given > SLICE_INPUTS
        if not long or (self.recorder is not None and self.recorder.drawn):
            return self.inputs, self.last, None
        parts = exact.Separable(self.inputs, self.last)
        count = max(1, parts.batch // SHARE)
        rows = torch.randperm(max(parts.batch, 1), generator=torch.Generator().manual_seed(seed))[:count].sort().values
        which = parts.find(self.model, self.inputs, self.last, rows)
        if which is None:
            return self.inputs, self.last, None
        taken = pytree.tree_map_only(Tensor, lambda t: t[rows.to(t.device)], self.last)
        return parts.sliced(self.inputs, which, rows), taken, rows

    def examine(self, request: Request) -> Answer:
        """Say what the model is, after its first forward: a contraction or why not, what it draws, what state it changes."""
        assert self.model is not None
        self.contraction = None
        values, names = contractions.flat_inputs(self.model, self.inputs)
        tracer = contractions.Tracer(values)
        answer, output = self._state(request.get("seed", 0), tracer)
        answer["not_given"] = arguments_left_out(self.model, self.inputs, self.names)
        try:
            if self.names is not None:
                raise contractions.NotAContraction("its inputs have names")
            contraction = contractions.find_contraction(tracer.graph(output), names)
            outputs = [leaf for _, leaf in wire.leaves(self.last)]
            if len(outputs) != 1 or not _close(contraction.run(values), outputs[0]):
                raise contractions.NotAContraction("its trace computes something else")
        except contractions.NotAContraction as error:
            return {**answer, "why_not": str(error)}
        self.contraction = contraction
        return {**answer, "contraction": contraction.describe()}

    def _state(self, seed: int, tracer: contractions.Tracer) -> tuple[Answer, Any]:
        """Return which buffers and plain attributes a forward changes, whether the attributes matter, and what the model draws;
        and the output of the forward that `tracer` has seen."""
        assert self.model is not None
        changed = self.changing = self.changed_state()
        self.restore_state()
        before = plain_attributes(self.model)
        versions = {name: parameter._version for name, parameter in self.model.named_parameters()}
        seed_everything(seed)
        generators = random.getstate(), _numpy_state()
        self.recorder, output = exact.record(self.model, self.inputs, self.names, tracer)
        others = [
            name
            for name, old, new in (
                ("Python's random", generators[0], random.getstate()),
                ("numpy.random", generators[1], _numpy_state()),
            )
            if old != new
        ]
        steady = _all_close(output, self.last)
        self.u, inner_u = (
            exact.coarsest(self.model, self.inputs, dtypes) for dtypes in (self.recorder.dtypes, self.recorder.inner)
        )
        # An output that no operator returned may have been computed in a way that the recorder does not see.
        found = [self.recorder.flow.of(t) if isinstance(t, Tensor) else None for _, t in wire.leaves(output)]
        unseen = Label(self.u, inner_u, picked=bool(self.operators() & PICKS))
        labels = [label if label is not None else unseen for label in found]
        self.inner_u = [label.inner or inner_u for label in labels]
        # Keep the names only: the numbers are as large as the data, and are drawn again later.
        self.recorder.drawn = [(name, []) for name, _ in self.recorder.drawn]
        self.restore_state()
        after = plain_attributes(self.model)
        hidden = sorted(name for name in after if name not in before or before[name] != after[name])
        trained = [name for name, p in self.model.named_parameters() if p._version != versions.get(name, p._version)]
        if hidden and steady:  # what it keeps may matter only after a call on other inputs
            steady = self._same_after_others(seed)
        return {
            "buffers": changed,
            "hidden": [] if steady else hidden or trained or ["something that is no buffer"],
            "trained": [] if steady else trained,
            "draws": sorted({name for name, _ in self.recorder.drawn}) + others,
            "working": self.u,
            "working_of": [label.u or self.u for label in labels],
            "ignored": sorted(self.recorder.ignored),
            "picks": [label.picked for label in labels],
        }, output

    def _same_after_others(self, seed: int) -> bool:
        """Return whether the model answers its inputs as before after a call on other inputs."""
        inputs, last = self.inputs, self.last
        others = self._given_for(seed + 1)
        for given in (others, inputs):
            self.restore_state()
            seed_everything(seed)
            output = self.call(given)
        self.restore_state()
        return _all_close(output, last)

    def rare_seeds(self, request: Request) -> Answer:
        """Return "seeds" after "seed" with which the single numbers that a call draws first are the smallest or the largest among
        all seeds that were tried; none if a call does not begin by drawing single numbers."""
        assert self.model is not None
        lead = SingleDraws()
        self.restore_state()
        seed_everything(request["seed"])
        with lead:
            self.call(self.inputs)
        self.restore_state()
        if not lead.calls:
            return {"seeds": []}
        begin, drawn = time.monotonic(), []
        seeds = range(request["seed"] + 1, request["seed"] + 1 + SEEDS_TRIED)
        for seed in seeds:
            seed_everything(seed)
            drawn.append(torch.stack([func(*args, **kw).reshape(-1)[0].double() for func, args, kw in lead.calls]))
            if time.monotonic() - begin > SEEDS_SECONDS:
                break
        table = torch.stack(drawn).nan_to_num_(nan=0.0)
        found = torch.cat([table.argmin(0), table.argmax(0)])
        return {"seeds": sorted({seeds[int(i)] for i in found})}

    def gauge(self, request: Request) -> Answer:
        contraction, values = self.traced()
        gauge = contraction.gauge(values)
        self.free_memory()
        return {"value": gauge}

    def spoiled(self, request: Request) -> Answer:
        """Return the product computed wrongly on purpose, for the self-test: "how" is tf32 or half."""
        contraction, values = self.traced()
        if request["how"] == "tf32":
            output = contraction.run(values, contractions.tf32, contractions.tf32)
        else:
            output = contraction.run(values, contractions.half_of_k)
        return {"value": output}

    def coarse(self, request: Request) -> Answer:
        """Return the output with the operands of every product rounded to "bits" bits, or to a "format" (formats.py; the output
        is then in float64), and its normwise error "apart"; nothing of these if there are no products."""
        assert self.model is not None
        self.restore_state()
        if self.last is None:
            self.forward({"seed": request["seed"]})
            self.restore_state()
        in_format = "format" in request
        cut = FORMATS[request["format"]] if in_format else partial(round_to, bits=request["bits"])
        counting, rounding = Rounding(), Rounding(cut=cut)
        drawn = self.drawn(request["seed"])
        with _seeded(self.model, request["seed"]), exact.DoubleModel(self.model, drawn) as twin:
            right = twin(self.inputs, counting, self.names)
            if not counting.products:
                return {"products": 0}
            rough = twin(self.inputs, rounding, self.names)
        errors = []
        for (_, own), (_, x), (_, r) in zip(
            wire.leaves(self.last), wire.leaves(right), wire.leaves(rough), strict=True
        ):
            if isinstance(own, Tensor) and own.is_floating_point():
                errors.append(Truth("", own, x).measure(r)[0].normwise)
        pairs = iter([leaf for _, leaf in wire.leaves(self.last)])

        def cast(t: Tensor) -> Tensor:
            like = next(pairs)
            return t.to(like.dtype) if isinstance(like, Tensor) else t

        output = rough if in_format else pytree.tree_map_only(Tensor, cast, rough)
        self.free_memory()
        return {"products": counting.products, "apart": max(errors, default=0.0), "value": self.copy(output)}

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


def arguments_left_out(model: torch.nn.Module, inputs: Sequence[Any], names: Sequence[str] | None) -> list[str]:
    """Return the arguments of forward that have defaults and that the inputs leave out. With `names`, inputs go by name."""
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):  # a function of C++, or none at all
        return []
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    left = [p.name for p in parameters if p.kind in plain]
    return [name for name in left if name not in names] if names is not None else left[len(inputs) :]


@contextlib.contextmanager
def _seeded(model: torch.nn.Module, seed: int) -> Iterator[None]:
    """Let every call of the model draw the same numbers from Python's generator and numpy's meanwhile. What it draws from torch's
    is recorded and replayed in its float64 runs; what it draws from these two is not seen."""
    handle = model.register_forward_pre_hook(lambda *_: seed_others(seed))
    try:
        yield
    finally:
        handle.remove()


def _numpy_state() -> tuple[bytes, int]:
    import numpy as np

    state: Any = np.random.get_state(legacy=False)  # noqa: NPY002 - the generator that a script may use
    return state["state"]["key"].tobytes(), state["state"]["pos"]


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


def _all_close(output: Any, other: Any) -> bool:
    """Return whether two outputs come from the same computation, leaf by leaf (`_close`)."""
    return all(
        _close(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else type(a) is type(b)
        for (_, a), (_, b) in zip(wire.leaves(output), wire.leaves(other), strict=False)
    )


def _close(a: Tensor, b: Tensor) -> bool:
    """Return whether two results come from the same computation: they have one shape and dtype, and differ by rounding only."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not b.is_floating_point():
        return torch.equal(a, b)
    largest = float(torch.nan_to_num(b, nan=0.0, posinf=0.0, neginf=0.0).abs().max()) if b.numel() else 0.0
    return not b.numel() or float(torch.nan_to_num(a - b, nan=0.0).abs().max()) <= 1e-2 * largest
