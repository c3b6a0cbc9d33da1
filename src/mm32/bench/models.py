"""One step of a model under torch's fp32, torch's TF32 and mm32: its time, and its errors against the same step in float64.

Every round runs a step in each setting, each on its own copy of the model's state. Times are in seconds by the host's clock, from
an idle device to an idle device: they are of the whole step, for which a user waits, not of its matrix products alone.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

import mm32
from mm32.bench.measure import timed
from mm32.bench.peers import torch_precision

METHOD = (
    "interleaved rounds of whole steps, medians of the host's clock from an idle device to an idle device; errors of each "
    "setting's first step against the same step in float64"
)
SETTINGS = {"torch": "torch fp32", "torch-tf32": "torch TF32", "mm32": "mm32"}
ON_CPU = (
    "mm32 works on CUDA tensors only and torch finds no CUDA device here: a small size on the CPU, CPU times, and all three "
    "settings are torch's fp32, so that their ratios are noise"
)
Outcome = Mapping[str, Sequence[torch.Tensor]]
Step = Callable[[], Outcome]


def relative_error(got: Sequence[torch.Tensor], truth: Sequence[torch.Tensor]) -> float:
    """Return ‖got − truth‖ / ‖truth‖ in float64, in the Euclidean norm over all tensors; NaN if anything is NaN."""
    difference = math.hypot(*(float((x.double() - t).norm()) for x, t in zip(got, truth, strict=True)))
    return difference / math.hypot(*(float(t.norm()) for t in truth))


def relative_errors(got: Outcome, truth: Outcome) -> dict[str, float]:
    return {quantity: relative_error(got[quantity], truth[quantity]) for quantity in truth}


@dataclass(frozen=True)
class Model:
    """A model whose steps are timed and compared.

    `prepare(dtype)` makes a new state in that dtype, always from the same float32 values, and returns a function that runs a step
    on it. A step returns its outcome: the quantities to compare, by name, each a sequence of detached tensors.
    `judge(outcome, truth)` returns the errors of an outcome by name, given the outcome of the float64 step.
    """

    name: str
    what: str
    prepare: Callable[[torch.dtype], Step]
    judge: Callable[[Outcome, Outcome], dict[str, float]] = relative_errors
    warmup: int = 0
    """Further steps of each setting before those that are timed: of programs that compile themselves while they run."""


Make = Callable[[str, bool], list[Model]]
"""(device, small) -> the models of a script."""


def training(
    weights: torch.nn.Module,
    data: Sequence[torch.Tensor],
    loss: Callable[..., tuple[torch.Tensor, torch.Tensor]],
    optimizer: Callable[[torch.nn.Module], torch.optim.Optimizer] | None = None,
) -> Callable[[torch.dtype], Step]:
    """Return the `prepare` of a model whose step is a training step: forward, backward, and the optimizer's step if there is one.

    Args:
        weights: a float32 module on its device; every state has a copy of it.
        data: what `loss` takes after the module; floating-point tensors are converted to the state's dtype.
        loss: (module, *data) -> the loss (a scalar) and what the module predicts.
        optimizer: makes an optimizer for the module, which is a copy.

    A step's outcome has "prediction" and "gradient", the gradient of all parameters. It does not have the loss, because the error
    of one number is luck.
    """

    def prepare(dtype: torch.dtype) -> Step:
        module = copy.deepcopy(weights).to(dtype).train()
        given = [t.to(dtype) if t.is_floating_point() else t for t in data]
        steps = optimizer(module) if optimizer is not None else None

        def step() -> Outcome:
            module.zero_grad()
            value, prediction = loss(module, *given)
            value.backward()
            if steps is not None:
                steps.step()
            gradient = [p.grad for p in module.parameters() if p.grad is not None]
            return {"prediction": [prediction.detach()], "gradient": gradient}

        return step

    return prepare


class SameDraws(TorchFunctionMode):
    """A context in which torch.randn and torch.randn_like return the same numbers in every dtype, as far as it holds them:
    float32 numbers from the seed on, converted. A library that draws for itself then computes the same in float32 and float64."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed

    def __enter__(self) -> Any:
        torch.manual_seed(self._seed)
        return super().__enter__()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if function not in (torch.randn, torch.randn_like):
            return function(*args, **options)
        made = args[0].dtype if function is torch.randn_like else torch.get_default_dtype()
        dtype = options.get("dtype") or made
        return function(*args, **{**options, "dtype": torch.float32}).to(dtype)


@contextlib.contextmanager
def setting(name: str) -> Iterator[None]:
    """Inside this context, fp32 products are computed by torch in fp32 ("torch"), by torch in TF32 ("torch-tf32"), or by mm32
    ("mm32"). Convolutions are in TF32 with "torch-tf32" only: torch allows cuDNN TF32 by default, which would hide the errors of
    everything else."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch_precision(tf32=name == "torch-tf32"))
        stack.callback(setattr, torch.backends.cudnn, "allow_tf32", torch.backends.cudnn.allow_tf32)
        torch.backends.cudnn.allow_tf32 = name == "torch-tf32"
        if name == "mm32":
            stack.enter_context(mm32.enabled())
        yield


def measure(model: Model, rounds: int = 9, budget: float = 6.0) -> dict[str, Any]:
    """Return a row of a record, with the times and errors of a step in each setting.

    Each setting has the seconds of a step (median, 95 % interval), the ratio of torch fp32's time to its own, and its errors.
    mm32 also has how many products of a step it ran, by kernel ("kernels"); how many calls of tensor-core kernels each tier
    computed on the card ("tiers": `mm32.stats`, docs/numerics.md); and how many products torch ran, by reason ("left to torch").

    There are at most `rounds` rounds; after the third, none begins once `budget` seconds are over. If a setting cannot finish the
    step, for example because TF32 makes a factorisation fail, it has the reason under "failed" in place of figures. torch fp32
    must finish the step.
    """
    truth = model.prepare(torch.float64)()
    steps = {name: model.prepare(torch.float32) for name in SETTINGS}
    results: dict[str, dict[str, Any]] = {}
    for name in SETTINGS:
        before = mm32.stats()
        try:
            with setting(name):
                outcome = steps[name]()
        except torch.linalg.LinAlgError as error:
            if name == "torch":
                raise
            results[name] = {"failed": str(error)}
            del steps[name]
            continue
        results[name] = {"errors": model.judge(outcome, truth)}  # outside of the setting, in which products are counted
        if name == "mm32":
            after = mm32.stats()
            results[name]["kernels"] = dict(Counter(after.kernels) - Counter(before.kernels))
            results[name]["tiers"] = dict(Counter(after.tiers) - Counter(before.tiers))
            results[name]["left to torch"] = dict(Counter(after.reasons) - Counter(before.reasons))
    del truth, outcome
    torch.cuda.empty_cache()
    for name, step in steps.items():
        with setting(name):
            for _ in range(model.warmup):
                step()
    times = _interleave(steps, rounds, budget)
    for name, figures in timed(times).items():
        results[name] |= figures
    return {"case": model.name, "what": model.what, "rounds": len(times["torch"]), "results": results}


def _interleave(steps: dict[str, Step], rounds: int, budget: float) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in steps}
    start = time.monotonic()
    for done in range(rounds):
        if done >= 3 and time.monotonic() - start > budget:
            break
        for name, step in steps.items():
            with setting(name):
                _wait()
                begin = time.perf_counter()
                step()
                _wait()
                times[name].append(time.perf_counter() - begin)
    return times


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def table(row: dict[str, Any]) -> str:
    """Return a row as text, with a line for each setting."""
    quantities = list(row["results"]["torch"]["errors"])
    lines = [["", "a step", "torch fp32 : this", *(f"error, {quantity}" for quantity in quantities)]]
    for name, result in row["results"].items():
        if "failed" in result:
            lines.append([SETTINGS[name], f"failed: {result['failed']}"])
            continue
        errors = [f"{result['errors'][quantity]:.1e}" for quantity in quantities]
        lines.append([SETTINGS[name], f"{result['seconds'] * 1e3:.1f} ms", f"{result['speedup']:.2f}", *errors])
    columns = range(len(lines[0]))
    widths = [max(len(line[c]) for line in lines if len(line) == len(lines[0])) for c in columns]
    return "\n".join(
        "  ".join(f"{text:<{w}}" for text, w in zip(line, widths, strict=False)).rstrip() for line in lines
    )


def tiers(result: dict[str, Any]) -> dict[str, int]:
    """Return how many products of a step each tier computed on the card, from mm32's result. Empty if the record does not say:
    older records have "careful" in its place."""
    return result.get("tiers", {})


def counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items())


def products(result: dict[str, Any]) -> str:
    """Return a text that says which matrix products of a step mm32 computed, by kernel and by tier, and which torch did."""
    ran = counted(result["kernels"]) or "none"
    left = ", ".join(f"{count} ({why})" for why, count in result["left to torch"].items()) or "none"
    by_tier = f"; tiers: {counted(tiers(result))}" if tiers(result) else ""
    return f"products of a step: mm32 ran {ran}{by_tier}; torch ran {left}"


def report(model: Model, device: str, budget: float = 6.0) -> dict[str, Any]:
    """Measure a model (`measure`), print its row, and return the row."""
    print(f"{model.name}: {model.what}", flush=True)
    row = measure(model, budget=budget)
    print(table(row))
    ours = row["results"]["mm32"]
    if device == "cuda" and "failed" not in ours:
        print(products(ours))
    print(flush=True)
    return row


def run(make: Make, small: bool = False) -> list[dict[str, Any]]:
    """Measure the models of a script on the CUDA device, or small ones on the CPU. Print each row, and return all rows."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        print(ON_CPU)
    return [report(model, device) for model in make(device, small or device == "cpu")]


def main(description: str, make: Make) -> int:
    """Run the command line of a script, which measures its models."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="sizes that take a few seconds; always so on a CPU")
    run(make, parser.parse_args().small)
    return 0
