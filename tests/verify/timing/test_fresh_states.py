"""Timed calls of a model whose forward changes buffers start from states of their own, which the trusted side makes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mm32.verify.exchange.stacked import Stack, unstacked
from mm32.verify.inputs.pools import Pools
from mm32.verify.processes.channel import Failure, Reply
from mm32.verify.reference import ReferenceRunner
from mm32.verify.timing.fresh import states
from mm32.verify.worker.runner import ScriptRunner

CPU = torch.device("cpu")
MODEL = """import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4, 8))
        self.register_buffer("age", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.mean.mul_(0.5).add_(x)
        self.age.add_(1)
        return self.mean * 2

def get_inputs():
    return [torch.rand(4, 8)]
"""


def state(number: float, whole: bool = False) -> dict[str, Tensor]:
    return {"mean": torch.full((4, 8), number), **({"age": torch.tensor(int(number))} if whole else {})}


def pools(whole: bool) -> Pools:
    made = Pools([[torch.rand(4, 8)] for _ in range(3)], CPU, state(0.0, whole))
    numbers = iter(range(1, 10_000))
    made.left = lambda count: [state(float(next(numbers)), whole) for _ in range(count)]
    return made


def test_no_state_recurs_from_window_to_window() -> None:
    for whole in (False, True):
        of = pools(whole)
        recipes = [recipe for _ in range(6) for recipe in of.recipes(6)]
        found = [float(of.state_of(recipe)["mean"][0, 0]) for recipe in recipes]
        assert len(set(found)) == len(found)


def test_a_counter_goes_with_the_buffers_of_its_call() -> None:
    of = pools(True)
    for recipe in of.recipes(8):
        found = of.state_of(recipe)
        assert float(found["mean"][0, 0]) == int(found["age"]) > 0


def test_calls_that_do_not_count_see_no_state_of_a_window_that_does() -> None:
    of = pools(True)
    timed = {int(of.state_of(recipe)["age"]) for recipe in of.recipes(4)}
    assert not timed & {int(of.state_of(of.recipe())["age"]) for _ in range(20)}


def test_a_candidate_with_other_buffers_gets_the_usual_state() -> None:
    of = pools(False)
    of.vary_state = False
    assert {float(of.state_of(recipe)["mean"].max()) for recipe in of.recipes(6)} == {0.0}


def test_a_state_is_the_last_of_the_inputs_of_a_call() -> None:
    of = pools(True)
    own = of.add([torch.ones(4, 8)])
    pieces = list(of.pieces(own))
    assert len(pieces) == 3
    assert float(pieces[0][0].min()) == 1.0
    assert [path for path, _ in of.leaves] == ["input[0]", "input[1]['mean']", "input[1]['age']"]


def test_the_reference_leaves_states_from_the_usual_one_on(tmp_path: Any) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    runner = ReferenceRunner()
    runner.load({"path": str(tmp_path / "model.py"), "class_name": "Model"})
    runner.construct_from_script({"seed": 1})
    runner.make_inputs({"seed": 1})
    runner.forward({"seed": 1})
    assert sorted(runner.keep_changed_state({})["buffers"]) == ["age", "mean"]
    first, again = (
        unstacked(found["value"], found["layout"]) for found in (runner.leave_states({"seeds": [5, n]}) for n in (6, 7))
    )
    assert [int(one["age"]) for one in first] == [1, 2]
    assert torch.equal(first[0]["mean"], again[0]["mean"])
    assert not torch.equal(first[1]["mean"], again[1]["mean"])
    assert int(runner.get_state({})["value"]["age"]) == 0
    # A timed call has been judged since, from its own state; another stage finds the usual state again.
    runner.restore_state(first[1])
    runner.keep_state(["age", "mean"])
    runner.forward({"seed": 1})
    runner.keep_changed_state({})
    assert int(runner.get_state({})["value"]["age"]) == 0


def test_a_timed_call_starts_from_the_state_that_comes_with_it() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.mean.add_(x)
            return self.mean.clone()

    runner = ScriptRunner()
    runner.model = Model()
    runner.keep_state(["mean"])
    x = torch.ones(3)
    assert runner._timed_call([x]).tolist() == [1, 1, 1]
    runner.stated = True
    assert runner._timed_call([x, {"mean": torch.full((3,), 5.0)}]).tolist() == [6, 6, 6]
    assert runner._timed_call([x, {"mean": torch.full((2,), 5.0)}]).tolist() == [1, 1, 1]  # does not fit
    assert runner._timed_call([x, {"other": torch.full((3,), 5.0)}]).tolist() == [1, 1, 1]


class Raises:
    def ask(self, op: str, *, seeds: Any) -> Reply:
        raise Failure("raised", "no")


class Counts:
    def ask(self, op: str, *, seeds: Any) -> Reply:
        return Reply({"layout": [["mean", [2, 3], 0]]}, [torch.zeros(len(seeds), 6)], 0.0)


@pytest.mark.parametrize(("each", "count"), [(0.01, 6), (0.1, 5), (3.0, 1)])
def test_slow_inputs_leave_fewer_states(each: float, count: int) -> None:
    assert len(states(Counts(), each, 6)) == count
    assert states(Raises(), each, 6) == []


def test_states_of_many_buffers_are_a_message_of_few_tensors() -> None:
    one = {
        "a": torch.rand(2, 3),
        "b": torch.tensor(4),
        "c": torch.rand(3, 2).t(),
        "d": torch.zeros(0),
        "e": torch.tensor(5),
    }
    other = {name: t + 1 for name, t in one.items()}
    stack = Stack()
    assert stack.add(one)
    assert stack.add(other)
    tensors = stack.tensors
    assert [(t.dtype, tuple(t.shape)) for t in tensors] == [(torch.float32, (2, 12)), (torch.int64, (2, 2))]
    for made, state in zip(unstacked(tensors, stack.layout), (one, other), strict=True):
        assert made.keys() == state.keys()
        assert all(torch.equal(made[name], t) and made[name].dtype == t.dtype for name, t in state.items())
    assert unstacked(Stack().tensors, []) == []


@pytest.mark.parametrize(
    "other",
    [
        {"a": torch.ones(2), "b": torch.tensor([torch.inf, 1, 1])},
        {"a": torch.ones(3), "b": torch.ones(2)},
        {"a": torch.ones(2).double(), "b": torch.ones(3)},
        {"a": torch.ones(2)},
    ],
)
def test_states_are_finite_and_of_the_same_buffers(other: dict[str, Tensor]) -> None:
    stack = Stack()
    assert stack.add({"a": torch.ones(2), "b": torch.ones(3)})
    assert not stack.add(other)
    assert [len(t) for t in stack.tensors] == [1]


def test_buffers_of_other_types_and_lazy_views_are_restored_too() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("low", torch.zeros(3, dtype=torch.bfloat16))
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))
            self.register_buffer("lazy", torch.fft.fft(torch.eye(4)).mH)
            self.register_buffer("negated", torch.fft.fft(torch.eye(4)).mH.imag)

        def forward(self, x: Tensor) -> Tensor:
            return x

    runner = ScriptRunner()
    runner.model = Model()
    runner.keep_state(["mean", "low", "count", "lazy", "negated"])
    given = {"mean": torch.full((3,), 1.5), "low": torch.full((3,), 2.5), "count": torch.tensor(7.0)}
    runner.restore_state(given)
    own = dict(runner.model.named_buffers())
    assert (own["mean"] == 1.5).all()
    assert (own["low"] == 2.5).all()
    assert own["low"].dtype == torch.bfloat16
    assert int(own["count"]) == 7
    assert torch.equal(own["lazy"].resolve_conj(), runner.kept_state["lazy"].resolve_conj())
    own["lazy"].zero_()
    runner.restore_state()
    assert float(own["lazy"].abs().sum()) > 0


def test_states_end_before_one_that_is_not_finite(tmp_path: Any) -> None:
    (tmp_path / "model.py").write_text(MODEL.replace("self.mean.mul_(0.5)", "self.mean.mul_(1e30).add_(1e30)"))
    runner = ReferenceRunner()
    runner.load({"path": str(tmp_path / "model.py"), "class_name": "Model"})
    runner.construct_from_script({"seed": 1})
    runner.make_inputs({"seed": 1})
    runner.forward({"seed": 1})
    runner.keep_changed_state({})
    found = runner.leave_states({"seeds": [5, 6, 7]})
    assert [int(one["age"]) for one in unstacked(found["value"], found["layout"])] == [1]
