"""Finds out what the reference's model is: a product or not, what it draws, and which state a call changes."""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..exchange import wire
from ..judging import contractions, exact
from ..judging.draws import SingleDraws
from ..judging.flow import PICKS, Label
from ..worker.runner import Answer, Request, plain_attributes, seed_everything

if TYPE_CHECKING:
    from .runner import ReferenceRunner

SEEDS_TRIED, SEEDS_SECONDS = 20_000, 1.0  # the most seeds and seconds that a search for rare single draws takes


class Examiner:
    """Looks at a runner's model after its first forward, and leaves what it found in the runner."""

    def __init__(self, runner: ReferenceRunner):
        self.runner = runner

    def examine(self, request: Request) -> Answer:
        """Say what the model is, after its first forward: a contraction or why not, what it draws, what state it changes."""
        runner = self.runner
        assert runner.model is not None
        runner.contraction = None
        values, names = contractions.flat_inputs(runner.model, runner.inputs)
        tracer = contractions.Tracer(values)
        answer, output = self._state(request.get("seed", 0), tracer)
        answer["not_given"] = arguments_left_out(runner.model, runner.inputs, runner.names)
        try:
            if runner.names is not None:
                raise contractions.NotAContraction("its inputs have names")
            contraction = contractions.find_contraction(tracer.graph(output), names)
            outputs = [leaf for _, leaf in wire.leaves(runner.last)]
            if len(outputs) != 1 or not _close(contraction.run(values), outputs[0]):
                raise contractions.NotAContraction("its trace computes something else")
        except contractions.NotAContraction as error:
            return {**answer, "why_not": str(error)}
        runner.contraction = contraction
        return {**answer, "contraction": contraction.describe()}

    def _state(self, seed: int, tracer: contractions.Tracer) -> tuple[Answer, Any]:
        """Return which buffers and plain attributes a forward changes, whether the attributes matter, and what the model draws;
        and the output of the forward that `tracer` has seen."""
        runner = self.runner
        assert runner.model is not None
        changed = runner.changing = runner.changed_state()
        runner.restore_state()
        before = plain_attributes(runner.model)
        versions = {name: parameter._version for name, parameter in runner.model.named_parameters()}
        seed_everything(seed)
        generators = random.getstate(), _numpy_state()
        runner.recorder, output = exact.record(runner.model, runner.inputs, runner.names, tracer)
        others = [
            name
            for name, old, new in (
                ("Python's random", generators[0], random.getstate()),
                ("numpy.random", generators[1], _numpy_state()),
            )
            if old != new
        ]
        steady = _all_close(output, runner.last)
        runner.u, inner_u = (
            exact.coarsest(runner.model, runner.inputs, dtypes)
            for dtypes in (runner.recorder.dtypes, runner.recorder.inner)
        )
        # An output that no operator returned may have been computed in a way that the recorder does not see.
        found = [runner.recorder.flow.of(t) if isinstance(t, Tensor) else None for _, t in wire.leaves(output)]
        unseen = Label(runner.u, inner_u, picked=bool(runner.operators() & PICKS))
        labels = [label if label is not None else unseen for label in found]
        runner.inner_u = [label.inner or inner_u for label in labels]
        # Keep the names only: the numbers are as large as the data, and are drawn again later.
        runner.recorder.drawn = [(name, []) for name, _ in runner.recorder.drawn]
        runner.restore_state()
        after = plain_attributes(runner.model)
        hidden = sorted(name for name in after if name not in before or before[name] != after[name])
        trained = [name for name, p in runner.model.named_parameters() if p._version != versions.get(name, p._version)]
        if hidden and steady:  # what it keeps may matter only after a call on other inputs
            steady = self._same_after_others(seed)
        return {
            "buffers": changed,
            "hidden": [] if steady else hidden or trained or ["something that is no buffer"],
            "trained": [] if steady else trained,
            "draws": sorted({name for name, _ in runner.recorder.drawn}) + others,
            "working": runner.u,
            "working_of": [label.u or runner.u for label in labels],
            "ignored": sorted(runner.recorder.ignored),
            "vectors": runner.recorder.uses_vectors(output),
            "picks": [label.picked for label in labels],
        }, output

    def _same_after_others(self, seed: int) -> bool:
        """Return whether the model answers its inputs as before after a call on other inputs."""
        inputs, last = self.runner.inputs, self.runner.last
        others = self.runner.given_for(seed + 1)
        for given in (others, inputs):
            self.runner.restore_state()
            seed_everything(seed)
            output = self.runner.call(given)
        self.runner.restore_state()
        return _all_close(output, last)

    def rare_seeds(self, request: Request) -> Answer:
        """Return "seeds" after "seed" with which the single numbers that a call draws first are the smallest or the largest among
        all seeds that were tried; none if a call does not begin by drawing single numbers."""
        runner = self.runner
        assert runner.model is not None
        lead = SingleDraws()
        runner.restore_state()
        seed_everything(request["seed"])
        with lead:
            runner.call(runner.inputs)
        runner.restore_state()
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


def arguments_left_out(model: torch.nn.Module, inputs: Sequence[Any], names: Sequence[str] | None) -> list[str]:
    """Return the arguments of forward that have defaults and that the inputs leave out. With `names`, inputs go by name."""
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):  # a function of C++, or none at all
        return []
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    left = [p.name for p in parameters if p.kind in plain]
    return [name for name in left if name not in names] if names is not None else left[len(inputs) :]


def _numpy_state() -> tuple[bytes, int]:
    import numpy as np

    state: Any = np.random.get_state(legacy=False)  # noqa: NPY002 - the generator that a script may use
    return state["state"]["key"].tobytes(), state["state"]["pos"]


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
