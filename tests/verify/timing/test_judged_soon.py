"""Outputs of timed calls are judged without a perturbed float64 run first, and by one where that is not enough."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mm32.verify.exchange.wire import leaves
from mm32.verify.judging.bounds import Truth
from mm32.verify.judging.judge import judge
from mm32.verify.judging.sizes import held_tightly
from mm32.verify.judging.truth import TruthSource
from mm32.verify.probing.varied import PERTURBED
from mm32.verify.processes.process import Limits
from mm32.verify.reference import ReferenceRunner
from mm32.verify.session import Session
from mm32.verify.timed_calls import TimedCalls
from support.verify import in_process

SEED = 3


class Timed:
    """A session that has a reference.

    `asked`: for each float64 run that the reference's process was asked for, whether it was to be perturbed.
    """

    def __init__(self, folder: Path, forward: str, inputs: str):
        (folder / "reference.py").write_text(
            "import torch\nimport torch.nn.functional as F\n\n\nclass Model(torch.nn.Module):\n"
            f"    def forward(self, x):\n        {forward}\n\n\ndef get_inputs():\n    return [{inputs}]\n"
        )
        self.worker = in_process.Worker(ReferenceRunner(), "reference")
        session = Session(folder / "reference.py", None, "auto", 1, SEED, Limits(), lambda text: None)
        self.truth = TruthSource(self.worker, lambda note: None)  # type: ignore[arg-type]
        self.timed = TimedCalls(session, None, self.truth)  # type: ignore[arg-type]
        self.worker.ask("load", path=str(folder / "reference.py"), class_name="Model")
        self.worker.ask("construct", seed=SEED)
        self.asked: list[bool] = []
        self.inputs: Any = None
        self.next(SEED)
        self.truth.examine(SEED)
        ask = self.worker.ask

        def counted(op: str, value: Any = None, **fields: Any) -> Any:
            if op == "truth":
                self.asked.append(fields["noise"])
            return ask(op, value, **fields)

        self.worker.ask = counted  # type: ignore[method-assign]

    def next(self, seed: int) -> None:
        """Go on to other data."""
        self.inputs = self.worker.ask("make_inputs", seed=seed).value
        self.right = self.worker.ask("forward", seed=SEED).value

    def judged(self, got: Any, perturb: bool = False) -> bool:
        self.asked.clear()
        truths, result = self.timed.soon(self.truth.of, got, self.right, SEED, perturb)
        assert len(truths) == len(leaves(self.right))
        return result.same


Made = Callable[..., Timed]


@pytest.fixture
def timed(tmp_path: Path) -> Made:
    return lambda forward, inputs="torch.randn(48, 64)": Timed(tmp_path, forward, inputs)


# Greedy suppression in a loop of torch operators, for which a float64 run takes long. The tests return places, as `nms` gives
# them, and one of them also scores.
LOOP = """order = x[:, 0].argsort(descending=True)
        apart = (x[:, None] - x[None]).abs().amax(2)
        alive = torch.ones(len(x), dtype=torch.bool)
        for i in order.tolist():
            later = torch.zeros(len(x), dtype=torch.bool)
            later[order[(order == i).nonzero().item() + 1:]] = True
            alive = alive & ~(alive[i] & later & (apart[i] < 1.0))
        """
BOXES = "torch.rand(48, 3) * 3"


def test_integers_that_are_equal_need_no_float64_run(timed: Made) -> None:
    of = timed(f"{LOOP}return alive, order", BOXES)
    alive, order = of.right
    assert of.judged((alive.clone(), order.clone()))
    assert of.asked == []
    wrong = alive.clone()
    wrong[0] = ~wrong[0]
    assert not of.judged((wrong, order))
    assert of.asked == [False, True], "rounding may change some: a perturbed run says how many"
    assert not of.judged((alive, order.int()))
    assert not of.judged((alive,))


def test_a_slow_model_is_perturbed_only_where_its_answer_is_off(timed: Made) -> None:
    of = timed(f"{LOOP}return alive, torch.where(alive, x[:, 0].square() + x[:, 1], 0.0)", BOXES)
    alive, scores = of.right
    assert of.judged((alive, scores * (1 + 2.0**-23)))
    assert of.asked == [False]
    assert not of.judged((alive, scores * 1.01))
    assert of.asked == [False, True]


def test_what_only_a_perturbed_run_allows_is_the_same(timed: Made) -> None:
    """A layer norm far from zero is such a case. After some such outputs the run is perturbed at once."""
    of = timed("return F.layer_norm(x + 300, x.shape[1:])", "torch.randn(64, 512)")
    for number in range(PERTURBED + 1):
        of.next(number)
        y = of.inputs[0] + 300
        y = y - y.cumsum(1)[:, -1:] / 512
        other = y * (y.square().cumsum(1)[:, -1:] / 512 + 1e-5).rsqrt()
        assert of.judged(other)
        assert of.asked == ([False, True] if number < PERTURBED else [True])
        assert of.judged(of.right)
        assert not of.judged(other * 1.01)
        of.timed.perturbed = min(of.timed.perturbed, number + 1)


def test_where_buffers_are_judged_as_well_it_is_perturbed_at_once(timed: Made) -> None:
    of = timed("return x.sin()")
    assert of.judged(of.right, perturb=True)
    assert of.asked == [True]


def test_of_a_product_no_run_is_perturbed(timed: Made) -> None:
    of = timed("return x @ x.mT")
    assert of.judged(of.right)
    assert of.asked == [True]  # this leaves it to the reference's process, which perturbs no run of a product


ENTRIES = "return torch.stack([x.sum(), x.square().sum() * 100, x[0, 0] + 100])", 2, 1e-3
COLUMNS = "return torch.cat([x[:, :4] * 1e5, x[:, 4:8] / 3], 1)", 6, 1e-5


@pytest.mark.parametrize(("forward", "at", "off"), [ENTRIES, COLUMNS], ids=["few entries", "a column of few rows"])
def test_a_small_part_is_judged_by_itself_without_a_perturbed_run(
    timed: Made, forward: str, at: int, off: float
) -> None:
    """The narrow bounds of the whole say nothing about parts that only a perturbed run tells of: these errors would pass."""
    of = timed(forward)
    wrong = of.right.clone()
    wrong[..., at] *= 1 + off
    plain = judge(wrong, of.truth.of(SEED, of.right, noise=False))
    assert plain.same, plain.reason
    assert not judge(wrong, of.truth.of(SEED, of.right)).same
    assert not of.judged(wrong)
    assert of.judged(of.right)
    assert of.asked == [False]


def _spoiled(right: Tensor, generator: torch.Generator) -> Tensor:
    """Return a result that is off by some size in all entries, or in one column or entry."""

    def number() -> float:
        return float(torch.rand((), generator=generator))

    size = 10 ** (-8 + 5 * number())
    off = torch.randn(right.shape, generator=generator) * size
    if number() < 0.5:
        off *= right.abs()
    else:
        off *= right.abs().max()
    if number() < 0.6:
        mask = torch.zeros_like(right)
        mask[..., int(number() * right.shape[-1])] = 1
        off *= mask
    return right + off


@pytest.mark.parametrize(
    "forward",
    [
        ENTRIES[0],
        COLUMNS[0],
        "return (x.softmax(1) * torch.logspace(-4, 0, 64))[:, ::4]",
        "return x.exp().cumsum(1)[:16, -2:]",
        "return (x * 1e3 - 1e3 * x.mean(0))[:, :32]",
        "return x.double()[:8, :8].float() / 3",
    ],
)
def test_what_is_the_same_without_a_perturbed_run_is_the_same_with_one(timed: Made, forward: str) -> None:
    of = timed(forward)
    generator = torch.Generator().manual_seed(0)
    found = {(True, True): 0, (False, False): 0, (False, True): 0}
    soon, late = held_tightly(of.truth.of(SEED, of.right, noise=False)), of.truth.of(SEED, of.right)
    for _ in range(300):
        got = _spoiled(of.right, generator)
        found[judge(got, soon).same, judge(got, late).same] += 1  # a KeyError if it is the same by the first alone
    assert found[True, True] > 10
    assert found[False, False] > 10


def test_truths_of_extreme_data_have_no_parts() -> None:
    x = torch.randn(8)
    truth = Truth("output", x, x.double(), extreme=True)
    assert held_tightly([truth])[0].entries == []
    assert held_tightly([Truth("output", x, x.double())])[0].entries == [0.0] * 8
    assert held_tightly([Truth("output", x, None)])[0].entries == []
