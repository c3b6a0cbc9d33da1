"""The program of the reference's process: what a worker does, and what only the trusted reference is asked.

The reference makes the inputs, the parameters and the probes' data, and gives the truth: its own result in float64, the
gauge of errors, and results computed wrongly on purpose. No candidate is loaded here. This is the one module outside of
worker/ that imports it: the reference has to run by the same code as the candidate, or their times would not compare.
The tool's own process never imports this module; process.py starts it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from . import machine, oracle, probes, text, wire
from .worker import main as worker
from .worker.runner import Answer, BuildError, Request, ScriptRunner, seed_everything


class ReferenceRunner(ScriptRunner):
    """The reference's model, and the truth about it."""

    def __init__(self) -> None:
        super().__init__()
        self.contraction: oracle.Contraction | None = None
        self.last: Any = None  # the output of the last forward

    def operations(self) -> dict[str, Callable[[Request], Answer]]:
        return {
            **super().operations(),
            "machine": self.machine,
            "construct": self.construct_from_script,
            "make_inputs": self.make_inputs,
            "truth": self.truth,
            "examine": self.examine,
            "gauge": self.gauge,
            "spoiled": self.spoiled,
            "probe": self.probe,
        }

    def machine(self, request: Request) -> Answer:
        return {"machine": machine.describe(self.device)}

    def load(self, request: Request) -> Answer:
        answer = super().load(request)
        assert self.script is not None
        for name in ("get_inputs", "get_init_inputs"):
            self.script.function(name)  # an error now rather than after the candidate was compiled
        return answer

    def construct_from_script(self, request: Request) -> Answer:
        """Make the model with the script's own get_init_inputs(), and return those and the model's state."""
        assert self.script is not None
        seed_everything(request["seed"])
        init = list(self.script.function("get_init_inputs")())
        seed_everything(request["seed"])
        self.model = self.construct(init).to(self.device)
        return {"value": {"init": init, "state": dict(self.model.state_dict())}}

    def make_inputs(self, request: Request) -> Answer:
        """The script's own inputs for a seed; they become the reference's, and go to the candidate."""
        assert self.script is not None
        seed_everything(request["seed"])
        made = self.script.function("get_inputs")()
        if not isinstance(made, (list, tuple)):
            raise BuildError(f"get_inputs() returned a {type(made).__name__}, not a list")
        self.place(list(made))
        return {"value": self.inputs}

    def forward(self, request: Request) -> Answer:
        self.last = None
        answer = super().forward(request)
        self.last = answer.get("value")
        return answer

    def truth(self, request: Request) -> Answer:
        """The model's output in float64 for the inputs that it has."""
        assert self.model is not None
        seed_everything(request["seed"])
        try:
            output = self.copy(oracle.run_in_double(self.model, self.inputs))
        finally:
            self._free_memory()
        return {"value": output}

    def examine(self, request: Request) -> Answer:
        """Whether the model is a contraction, checked against the last forward's output, and the lengths of its sums."""
        assert self.model is not None
        self.contraction = None
        try:
            values, names = oracle.flat_inputs(self.model, self.inputs)
            graph = oracle.trace(self.model, self.inputs)
        except Exception as error:
            said = text.one_line((str(error).splitlines() or ["no message"])[0], 200)
            return {"why_not": f"it cannot be traced ({type(error).__name__}: {said})", "lengths": []}
        lengths = oracle.reduction_lengths(graph.graph)
        try:
            contraction = oracle.find_contraction(graph, names)
            outputs = [leaf for _, leaf in wire.leaves(self.last)]
            if len(outputs) != 1 or not _close(contraction.run(values), outputs[0]):
                raise oracle.NotAContraction("its trace computes something else")
        except oracle.NotAContraction as error:
            return {"why_not": str(error), "lengths": lengths}
        self.contraction = contraction
        return {"contraction": contraction.describe(), "lengths": lengths}

    def gauge(self, request: Request) -> Answer:
        contraction, values = self._traced()
        gauge = contraction.gauge(values).cpu()
        self._free_memory()
        return {"value": gauge}

    def spoiled(self, request: Request) -> Answer:
        """The product computed wrongly on purpose, for the self-test: "how" is tf32 or half."""
        contraction, values = self._traced()
        if request["how"] == "tf32":
            output = contraction.run(values, oracle.tf32, oracle.tf32)
        else:
            output = contraction.run(values, oracle.half_of_k)
        return {"value": output.cpu()}

    def probe(self, request: Request) -> Answer:
        """Fill inputs and parameters with the data of the probe "name", and return both; or "why_not"."""
        contraction, values = self._traced()
        assert self.model is not None
        try:
            filled = probes.fill(probes.BY_NAME[request["name"]], contraction, values, request["seed"])
        except probes.CannotProbe as error:
            return {"why_not": str(error)}
        count = len(values) - len(pytree.tree_leaves(self.inputs))
        for parameter, new in zip(values[:count], filled[:count], strict=True):
            parameter.detach().copy_(new)
        spec = pytree.tree_flatten(self.inputs)[1]
        self.place(pytree.tree_unflatten(filled[count:], spec))
        self._free_memory()
        return {"value": {"inputs": self.inputs, "state": dict(self.model.state_dict())}}

    def _traced(self) -> tuple[oracle.Contraction, list[Any]]:
        """The contraction that the model is, and the inputs of its graph."""
        assert self.contraction is not None
        assert self.model is not None
        return self.contraction, oracle.flat_inputs(self.model, self.inputs)[0]

    def _free_memory(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def _close(a: Tensor, b: Tensor) -> bool:
    """Whether two results are of the same computation: of one shape and dtype, and different by rounding only."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    largest = float(torch.nan_to_num(b, nan=0.0, posinf=0.0, neginf=0.0).abs().max()) if b.numel() else 0.0
    return not b.numel() or float(torch.nan_to_num(a - b, nan=0.0).abs().max()) <= 1e-2 * largest


def main(arguments: list[str]) -> None:
    worker.main(arguments, ReferenceRunner)
