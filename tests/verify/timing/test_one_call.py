"""Windows of one call: whether they bear out what windows of many calls claim. Simulated times, and a real cheat."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from mm32.verify import Verdict, verify
from mm32.verify.timing import one_call, rounds
from mm32.verify.timing.faster_half import Interval
from mm32.verify.timing.one_call import AGREES, CONTRADICTS, DOUBTS, MOST, UNCLEAR, Claim, OneCall
from mm32.verify.timing.rounds import SIDES, Times, borne_out, conclude
from support.verify.entries import CORPUS
from support.verify.fixtures import Run

pytestmark = pytest.mark.usefixtures("whole_windows")
US = 1e-6
NULL = 200 * US


def simulated(
    chance: random.Random, seconds: float, saved: float, cold: float, colder: float, noise: float, rounds: int = MOST
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return whole windows and net times of windows of one call.

    Calls by themselves take `cold` longer, the candidate's `colder` more than that; one window in twenty takes up to three times
    as long.
    """
    takes = {"reference": seconds + cold, "control": seconds + cold, "candidate": seconds - saved + cold + colder}
    walls = {
        name: [
            (NULL + t + abs(chance.gauss(0, noise))) * (chance.uniform(1, 3) if chance.random() < 0.05 else 1)
            for _ in range(rounds)
        ]
        for name, t in takes.items()
    }
    return walls, {name: [max(wall - NULL, 0.05 * wall) for wall in of] for name, of in walls.items()}


def says(device: str = "cpu", gain: float = 2.0, **more: float) -> list[str]:
    """Return what the rule says in 100 runs, for a claim of `gain`."""
    chance = random.Random(f"{gain} {more}")
    said = []
    for _ in range(100):
        walls, nets = simulated(chance, **more)  # type: ignore[arg-type]
        found = one_call.look(walls, nets, Claim(more["seconds"], gain, 0.95 * gain), device)
        assert found is not None
        said.append(found.says)
    return said


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("gain", [1.11, 1.5, 3.0])
@pytest.mark.parametrize("seconds", [20 * US, 200 * US, 5e-3])
@pytest.mark.parametrize("noise", [5 * US, 50 * US])
def test_honest_gains_are_not_contradicted(device: str, gain: float, seconds: float, noise: float) -> None:
    """A call by itself takes 100 µs longer, and the candidate's may take a fifth of that more than the reference's."""
    saved = seconds * (1 - 1 / gain)
    for colder in (0.0, 20 * US):
        found = says(device, gain, seconds=seconds, saved=saved, cold=100 * US, colder=colder, noise=noise)
        assert found.count(CONTRADICTS) <= 1


@pytest.mark.parametrize("gain", [2.0, 16.0])
@pytest.mark.parametrize("seconds", [150 * US, 1e-3])
def test_what_only_windows_of_many_calls_gain_is_contradicted(gain: float, seconds: float) -> None:
    found = says(gain=gain, seconds=seconds, saved=0.0, cold=50 * US, colder=0.0, noise=20 * US)
    assert found.count(CONTRADICTS) >= 99
    found = says("cuda", gain, seconds=seconds, saved=0.0, cold=50 * US, colder=0.0, noise=5 * US)
    assert AGREES not in found
    assert found.count(CONTRADICTS) >= 99 or seconds * (1 - 1 / gain) < 2 * one_call.HIDDEN["cuda"] + 60 * US


@pytest.mark.parametrize("gain", [1.5, 3.0, 16.0])
@pytest.mark.parametrize("noise", [0.3, 1.0, 3.0])
def test_a_doubt_is_of_what_is_not_there(gain: float, noise: float) -> None:
    """Where times vary as much as a call takes, most that read ahead and claim much are in doubt, and no honest one."""
    honest = says(
        gain=gain, seconds=1e-3, saved=1e-3 * (1 - 1 / gain), cold=50 * US, colder=10 * US, noise=noise * 1e-3
    )
    assert honest.count(DOUBTS) + honest.count(CONTRADICTS) <= 1
    ahead = says(gain=gain, seconds=1e-3, saved=0.0, cold=50 * US, colder=0.0, noise=noise * 1e-3)
    if (gain - 1) / gain >= 0.6 * noise:
        assert ahead.count(DOUBTS) + ahead.count(CONTRADICTS) >= 65
    assert says(gain=1.2, seconds=1e-3, saved=0.0, cold=50 * US, colder=0.0, noise=noise * 1e-3).count(DOUBTS) == 0


def test_what_cannot_be_told_is_said() -> None:
    """For a call of 20 µs, where a launcher of kernels may take 50 µs longer than another, neither word is right."""
    found = says("cuda", 1.3, seconds=20 * US, saved=0.0, cold=50 * US, colder=0.0, noise=20 * US)
    assert CONTRADICTS not in found
    assert found.count(UNCLEAR) >= 98


def test_a_part_of_the_claim_has_to_be_there() -> None:
    for part, word in ((0.8, AGREES), (0.1, CONTRADICTS)):
        saved = part * 1e-3 * (1 - 1 / 2)
        assert says(gain=2.0, seconds=1e-3, saved=saved, cold=20 * US, colder=0.0, noise=10 * US).count(word) >= 99


def test_the_claim_is_between_the_speedup_and_what_is_sure_of_it() -> None:
    assert Claim(1e-3, 2.0, 2.0).saved(2e-3) == pytest.approx(0.5e-3)
    assert Claim(1e-3, 4.0, 1.0).saved(2e-3) == pytest.approx(0.5e-3)
    assert Claim(1e-3, 2.0, 2.0).saved(0.5e-3) == pytest.approx(0.25e-3)  # a call by itself is twice as fast: a cache
    assert (
        one_call.look(*simulated(random.Random(0), 1e-3, 0.0, 0.0, 0.0, 0.0, 7), Claim(1e-3, 2.0, 2.0), "cpu") is None
    )


def test_the_interval_is_the_exact_order_statistic() -> None:
    found = one_call.order_interval([float(i) for i in range(1, 11)], 2)
    assert (found.low, found.ratio, found.high) == (2.0, 5.5, 9.0)
    assert found.coverage == pytest.approx(1 - 2 * 11 / 1024)
    assert one_call.order_interval([3.0, 1.0, 2.0], 1) == Interval(2.0, 1.0, 3.0, 0.75)


def outcome(saved: float) -> OneCall:
    walls, nets = simulated(random.Random(0), 1e-3, saved, 50 * US, 0.0, 10 * US)
    found = one_call.look(walls, nets, Claim(1e-3, 2.0, 1.9), "cpu")
    assert found is not None
    return found


def test_faster_stands_or_is_suspect() -> None:
    net = {"reference": 1e-3, "candidate": 0.5e-3, "control": 1e-3, "null": 0.0}
    times = {name: Times([net[name] + 1e-4] * 12, [net[name]] * 12, [net[name]] * 12) for name in SIDES}
    made = conclude(times, 5e-5, 1e-3, 10, "cpu", [])
    assert made.verdict is Verdict.FASTER
    assert made.record()["one_call"] is None
    stands = borne_out(made, outcome(0.5e-3), quiet=True)
    assert (stands.verdict, stands.note) == (Verdict.FASTER, "")
    assert stands.record()["one_call"]["says"] == AGREES
    assert stands.record()["one_call"]["speedup"] == pytest.approx(1.05 / 0.55, rel=0.05)
    falls = borne_out(made, outcome(0.0), quiet=True)
    assert falls.verdict is Verdict.SUSPECT
    assert falls.note.startswith("2.00x in windows of 10 calls, but 1.00x in windows of one call")
    assert borne_out(made, outcome(0.5e-3), quiet=False).verdict is Verdict.SUSPECT
    doubted = borne_out(made, dataclasses.replace(outcome(0.0), says=DOUBTS), quiet=True)
    assert doubted.verdict is Verdict.INCONCLUSIVE
    assert "Times there vary too much" in doubted.note


@pytest.mark.slow
def test_a_window_that_is_computed_ahead_is_not_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "SLOWED", {"cpu": 100.0, "cuda": 100.0})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    folder = Path(CORPUS)
    report = verify(folder / "references/w_small_rnn.py", folder / "cheats/w_window_ahead.py", trials=2, seed=1)
    assert report.verdict.same, report.reason
    assert report.verdict is not Verdict.FASTER
    assert report.timing is not None
    found = report.timing["one_call"]
    if report.verdict is Verdict.SUSPECT and found is not None:
        assert found["says"] == CONTRADICTS
        assert "windows of one call" in report.reason


SLOW = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, A, B):
        for _ in range(20):
            C = torch.relu(torch.matmul(A.T, B.T))
        return C

def get_inputs():
    return [torch.rand(80, 64), torch.rand(96, 80)]
"""


RIGHT_HERE = """
import gc
import torch
from torch import nn

runner = next(x for x in gc.get_objects() if type(x).__name__ == "ScriptRunner")

class ModelNew(nn.Module):
    def forward(self, A, B):
        C = torch.relu(A.T @ B.T)
        return C * 2 if WRONG and runner.slots and runner.slots.description["count"] == 1 and not self.first() else C

    calls = 0

    def first(self):
        self.calls += 1
        return self.calls < 20
"""


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let other work on this machine not make the times suspect."""
    monkeypatch.setattr(rounds, "SLOWED", {"cpu": 100.0, "cuda": 100.0})


@pytest.mark.usefixtures("busy")
def test_calls_by_themselves_are_judged_too(run: Run) -> None:
    report = run(RIGHT_HERE.replace("WRONG", "False"), reference=SLOW)
    assert report.timing is not None
    says = report.timing["one_call"]["says"]
    assert (report.verdict, says) in (
        (Verdict.FASTER, AGREES),
        (Verdict.FASTER, UNCLEAR),
        (Verdict.INCONCLUSIVE, DOUBTS),  # on a busy machine
    ), report.reason
    report = run(RIGHT_HERE.replace("WRONG", "True").replace("< 20", "< 3"), reference=SLOW)
    assert report.verdict is Verdict.DIFFERENT, report.reason
    assert "the output of a timed call" in report.reason
