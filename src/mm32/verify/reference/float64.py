"""Runs the reference's model in float64: its truth, how far rounding may move it, and results computed wrongly on purpose."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..exchange import wire
from ..judging import contractions, exact
from ..judging.bounds import Truth
from ..judging.draws import CannotReplay
from ..judging.formats import FORMATS
from ..judging.rounding import Rounding, round_to
from ..worker.runner import Answer, BuildError, Request, seed_everything, seed_others

if TYPE_CHECKING:
    from .runner import ReferenceRunner

# The truth is computed for a part of the batch only, 1 / SHARE of it, if a forward in fp32 takes more than SLICE_ABOVE seconds.
SLICE_ABOVE = {"cpu": 1.0, "cuda": 0.05}
SLICE_BYTES = {"cpu": 32 << 20, "cuda": 256 << 20}  # bytes of the output, above which the same is done
SLICE_INPUTS = 1 << 30  # bytes of all inputs, above which it is done however small the output is
SHARE = 16
REPEATED = 1_000_003  # distance between the seeds of repeated perturbed runs on the same data
# A model with at least RECURRENT multiplications is taken for a loop over a sequence. If it has exponentials too, it has decays,
# whose products an honest kernel computes as exponentials of differences of sums.
RECURRENT, EXPONENTIALS = 32, {"exp", "exp2"}
# Operators that interpolate between two entries. An honest kernel may compute with their difference, which may be Inf - Inf.
BETWEEN = ("grid_sampler", "upsample", "_upsample", "lerp")


@contextlib.contextmanager
def _seeded(model: torch.nn.Module, seed: int) -> Iterator[None]:
    """Let every call of the model draw the same numbers from Python's generator and numpy's meanwhile. What it draws from torch's
    is recorded and replayed in its float64 runs; what it draws from these two is not seen."""
    handle = model.register_forward_pre_hook(lambda *_: seed_others(seed))
    try:
        yield
    finally:
        handle.remove()


class Float64:
    """Answers what needs a runner's model in float64. Every method leaves the model in the state that calls find."""

    def __init__(self, runner: ReferenceRunner):
        self.runner = runner

    def truth(self, request: Request) -> Answer:
        """Return the model's output in float64 for the inputs of the last forward, the lengths of its sums, and how far honest
        rounding may move it ("noise", "flips", "entries", "sizes", "columns"; "state" for its buffers). Where a float64 run takes
        long, the truth covers a part of the batch: "rows" says which. "few" is for data whose sums have few terms: "noise" then
        comes from these terms, and "additions" says how many additions round."""
        runner = self.runner
        assert runner.model is not None
        runner.restore_state()
        why_not = ""
        try:
            drawn, inputs, right, rows = self._for_float64(request["seed"])
            with _seeded(runner.model, request["seed"]):
                found = exact.run(
                    runner.model,
                    inputs,
                    drawn,
                    right,
                    runner.inner_u,
                    request["seed"] + REPEATED * int(request.get("again", 0)),
                    runner.names,
                    runner.contraction is None and bool(request.get("noise", True)),
                    bool(request.get("few")),
                )
            if not request.get("few"):
                runner.lengths, runner.products = found.lengths, found.products
            recurrent = found.multiplications >= RECURRENT
            return {
                "value": {"exact": runner.copy(found.output), "rows": rows, "loose": found.loose},
                "lengths": found.lengths,
                "products": found.products,
                "regroups": recurrent or any(name.startswith(BETWEEN) for name in runner.operators()),
                "decays": recurrent and bool(runner.operators() & EXPONENTIALS),
                "noise": found.noise,
                "unordered": found.unordered,
                "flips": found.flips,
                "steps": found.steps,
                "entries": found.entries,
                "sizes": found.sizes,
                "columns": found.columns,
                "state": found.state if rows is None else {},
                "additions": found.additions,
                "working": runner.u,
            }
        except CannotReplay as error:
            why_not = str(error)
        except torch.OutOfMemoryError:
            why_not = "float64 takes more memory than the device has left"
        finally:
            runner.restore_state()
            if not why_not:
                runner.free_memory()
        runner.free_memory()  # what the exception's traceback held is free only now
        raise BuildError(why_not)

    def in_order(self, request: Request) -> Answer:
        """Return the model's output for the inputs of the last forward with its sums made in order, in the "way" asked for
        (in_order.py), for the part of the batch that the truth covers; None where that takes too long."""
        runner = self.runner
        assert runner.model is not None
        runner.restore_state()
        try:
            drawn, inputs, _, _ = self._for_float64(request["seed"])
            with _seeded(runner.model, request["seed"]):
                found = exact.in_order(runner.model, inputs, drawn, request["way"], runner.names)
            return {"value": runner.copy(found)}
        except (CannotReplay, torch.OutOfMemoryError):
            return {"value": None}
        finally:
            runner.restore_state()
            runner.free_memory()

    def _for_float64(self, seed: int) -> tuple[list[Any], list[Any], Any, Tensor | None]:
        """Return what a float64 run needs: the random numbers that the model draws, and the inputs, the fp32 output and the rows
        of `_part`. Raises CannotReplay."""
        drawn = self.drawn(seed)
        if self.runner.last is None:  # the inputs have changed since the last forward
            self.runner.forward({"seed": seed})
            self.runner.restore_state()
        return (drawn, *self._part(seed))

    def drawn(self, seed: int) -> list[Any]:
        """Return the random numbers that the model draws with this seed. Raises CannotReplay."""
        runner = self.runner
        assert runner.model is not None
        if runner.recorder is not None and not runner.recorder.drawn:
            return []
        seed_everything(seed)
        recorder, _ = exact.record(runner.model, runner.inputs, runner.names)
        if recorder.opaque:
            raise CannotReplay(f"it draws random numbers inside of {recorder.opaque}")
        return recorder.drawn

    def _part(self, seed: int) -> tuple[list[Any], Any, Tensor | None]:
        """Return the inputs and the fp32 output that the truth is computed from, and which rows of the batch these are: None for
        all."""
        runner = self.runner
        assert runner.model is not None
        outputs = [leaf for _, leaf in wire.leaves(runner.last) if isinstance(leaf, Tensor)]
        size = sum(t.numel() * t.element_size() for t in outputs)
        given = sum(t.numel() * t.element_size() for t in pytree.tree_leaves(runner.inputs) if isinstance(t, Tensor))
        long = runner.seconds > SLICE_ABOVE[runner.device.type] or size > SLICE_BYTES[runner.device.type]
        long = long or given > SLICE_INPUTS
        if not long or (runner.recorder is not None and runner.recorder.drawn):
            return runner.inputs, runner.last, None
        parts = exact.Separable(runner.inputs, runner.last)
        count = max(1, parts.batch // SHARE)
        rows = torch.randperm(max(parts.batch, 1), generator=torch.Generator().manual_seed(seed))[:count].sort().values
        which = parts.find(runner.model, runner.inputs, runner.last, rows)
        if which is None:
            return runner.inputs, runner.last, None
        taken = pytree.tree_map_only(Tensor, lambda t: t[rows.to(t.device)], runner.last)
        return parts.sliced(runner.inputs, which, rows), taken, rows

    def gauge(self, request: Request) -> Answer:
        """Return |A||B| of the product that the model is, by which its errors are measured componentwise."""
        contraction, values = self.runner.traced()
        gauge = contraction.gauge(values)
        self.runner.free_memory()
        return {"value": gauge}

    def spoiled(self, request: Request) -> Answer:
        """Return the product computed wrongly on purpose, for the self-test: "how" is tf32 or half."""
        contraction, values = self.runner.traced()
        if request["how"] == "tf32":
            output = contraction.run(values, contractions.tf32, contractions.tf32)
        else:
            output = contraction.run(values, contractions.half_of_k)
        return {"value": output}

    def coarse(self, request: Request) -> Answer:
        """Return the output with the operands of every product rounded to "bits" bits, or to a "format" (formats.py; the output
        is then in float64), and its normwise error "apart"; nothing of these if there are no products."""
        runner = self.runner
        assert runner.model is not None
        runner.restore_state()
        if runner.last is None:
            runner.forward({"seed": request["seed"]})
            runner.restore_state()
        in_format = "format" in request
        cut = FORMATS[request["format"]] if in_format else partial(round_to, bits=request["bits"])
        counting, rounding = Rounding(), Rounding(cut=cut)
        drawn = self.drawn(request["seed"])
        with _seeded(runner.model, request["seed"]), exact.DoubleModel(runner.model, drawn) as twin:
            right = twin(runner.inputs, counting, runner.names)
            if not counting.products:
                return {"products": 0}
            rough = twin(runner.inputs, rounding, runner.names)
        errors = []
        for (_, own), (_, x), (_, r) in zip(
            wire.leaves(runner.last), wire.leaves(right), wire.leaves(rough), strict=True
        ):
            if isinstance(own, Tensor) and own.is_floating_point():
                errors.append(Truth("", own, x).measure(r)[0].normwise)
        pairs = iter([leaf for _, leaf in wire.leaves(runner.last)])

        def cast(t: Tensor) -> Tensor:
            like = next(pairs)
            return t.to(like.dtype) if isinstance(like, Tensor) else t

        output = rough if in_format else pytree.tree_map_only(Tensor, cast, rough)
        runner.free_memory()
        return {"products": counting.products, "apart": max(errors, default=0.0), "value": runner.copy(output)}
