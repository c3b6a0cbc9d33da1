"""When timing stops and what it says: the rule on simulated times, and the conclusion. Numbers alone, no clocks."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from mm32.verify.text import in_units
from mm32.verify.timing import sequential
from mm32.verify.timing.rounds import (
    SIDES,
    TARGET,
    Times,
    Timing,
    calls_of_a_window,
    conclude,
    estimated,
)
from mm32.verify.verdict import Verdict


def one_run(
    chance: random.Random, speed: float, noise: float, bias: float, spikes: float, device: str
) -> tuple[str, int]:
    """Return what the rule says in the end of a candidate that is `speed` times as fast, and after how many rounds.

    A process's times differ from another's by a factor of `bias` (the standard deviation of its logarithm) for as long as it
    lives, and from window to window by `noise`. A share `spikes` of the windows takes up to four times as long.
    """
    own = [chance.gauss(0, bias) for _ in range(3)]
    times: tuple[list[float], ...] = [], [], []  # reference, control, candidate
    for _ in range(sequential.MAX_ROUNDS):
        for side, shift, by in zip(times, own, (1.0, 1.0, speed), strict=True):
            spike = chance.uniform(1.5, 4) if chance.random() < spikes else 1.0
            side.append(math.exp(shift + chance.gauss(0, noise)) * spike / by)
        if sequential.decided(*times, device):
            break
    return sequential.look(*times, device).says, len(times[0])


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(
    "spikes", [pytest.param(0.0, marks=pytest.mark.slow), 0.1, pytest.param(0.4, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("noise", [0.002, 0.01, 0.05, 0.2, 0.6])
def test_identical_code_is_called_faster_or_slower_in_at_most_one_percent(
    noise: float, spikes: float, device: str
) -> None:
    chance = random.Random(f"{noise} {spikes} {device}")
    # Two processes of the same code may differ by a quarter of the margin.
    bias = math.log(sequential.MARGIN[device]) / 4
    said = Counter(one_run(chance, 1.0, noise, bias, spikes, device)[0] for _ in range(400))
    assert said["faster"] + said["slower"] <= 4


@pytest.mark.parametrize("noise", [0.002, 0.005, 0.01])
def test_five_percent_faster_on_a_quiet_card_is_called_faster(noise: float) -> None:
    chance = random.Random(str(noise))
    said = Counter(one_run(chance, 1.05, noise, 0.003, 0.02, "cuda")[0] for _ in range(300))
    assert said["faster"] >= 0.95 * 300
    assert not said["slower"]


@pytest.mark.parametrize(("speed", "device"), [(1.3, "cuda"), (1.5, "cpu")])
def test_a_quarter_of_windows_that_take_longer_hides_no_gain(speed: float, device: str) -> None:
    """Windows are like this on a host whose other cards are in use."""
    chance = random.Random(speed)
    runs = [one_run(chance, speed, 0.005, 0.003, 0.25, device) for _ in range(200)]
    assert Counter(says for says, _ in runs)["faster"] >= 190
    assert sum(rounds for _, rounds in runs) / len(runs) < 40


@pytest.mark.parametrize(
    ("device", "reference", "candidate"),
    [("cuda", 0.005, 0.05), ("cuda", 0.01, 0.1), ("cpu", 0.02, 0.3), ("cuda", 0.05, 0.005), ("cuda", 0.1, 0.01)],
)
def test_who_varies_more_is_not_faster_for_it(device: str, reference: float, candidate: float) -> None:
    """This holds though the faster half of its windows is faster."""
    chance = random.Random(f"{device} {reference} {candidate}")
    said: Counter[str] = Counter()
    for _ in range(400):
        times: tuple[list[float], ...] = [], [], []
        for _ in range(sequential.MAX_ROUNDS):
            for side, noise in zip(times, (reference, reference, candidate), strict=True):
                side.append(math.exp(chance.gauss(0, noise)))
            if sequential.decided(*times, device):
                break
        said[sequential.look(*times, device).says] += 1
    assert said["faster"] + said["slower"] <= 9  # 1 %, and what chance adds in 400 runs


def test_a_minority_of_fast_windows_makes_nobody_faster() -> None:
    usual = [1.0] * 12
    some = [0.7] * 5 + [3.1] * 7
    found = sequential.look(usual, usual, some, "cuda")
    assert found.says == "unclear"
    every_third_slow = [0.7, 0.7, 3.1] * 4
    found = sequential.look(usual, usual, every_third_slow, "cuda")
    assert found.interval.low > found.margin
    assert found.unborne


@pytest.mark.parametrize(("speed", "says"), [(10.0, "faster"), (0.1, "slower")])
def test_what_is_clear_ends_early(speed: float, says: str) -> None:
    chance = random.Random(says)
    runs = [one_run(chance, speed, 0.02, 0.01, 0.0, "cpu") for _ in range(50)]
    assert runs == [(says, sequential.MIN_ROUNDS)] * 50


def test_what_is_within_the_margin_ends_before_all_rounds() -> None:
    chance = random.Random(0)
    runs = [one_run(chance, 1.0, 0.002, 0.0, 0.0, "cuda") for _ in range(50)]
    assert {says for says, _ in runs} == {"unclear"}
    assert max(rounds for _, rounds in runs) == 12


def test_noise_between_two_processes_of_the_reference_widens_the_margin() -> None:
    assert sequential.look([1.2] * 12, [1.2] * 12, [1.0] * 12, "cuda").says == "faster"
    noisy = sequential.look([1.2] * 12, [1.5] * 12, [1.0] * 12, "cuda")
    assert (noisy.says, noisy.margin) == ("unclear", pytest.approx(1.25))
    assert sequential.look([0.5] * 4, [0.5] * 4, [1.0] * 4, "cuda").says == "unclear"  # too few


def timing(
    reference: float, candidate: float, null: float = 1e-4, before: float | None = None, exchange: float = 5e-5
) -> Timing:
    """Return the conclusion from twelve quiet rounds of these net times."""
    net = {"reference": reference, "candidate": candidate, "control": reference, "null": 0.0}
    times = {name: Times([net[name] + null] * 12, [net[name]] * 12, [net[name]] * 12) for name in SIDES}
    return conclude(times, exchange, before or reference, 10, "cuda", [])


def test_faster_slower_and_inconclusive() -> None:
    assert timing(1e-3, 0.9e-3).verdict is Verdict.FASTER
    assert timing(1e-3, 2e-3).verdict is Verdict.SLOWER
    within = timing(1e-3, 0.99e-3)
    assert (within.verdict, within.note) == (Verdict.INCONCLUSIVE, "the interval 1.01 to 1.01 comes within 2% of 1")
    assert timing(1e-3, 1e-3).note == "the interval 1.00 to 1.00 contains 1"


def test_both_ratios_are_told() -> None:
    found = timing(1e-3, 0.5e-3)
    record = found.record()
    assert record["speedup"] == pytest.approx(2)
    assert record["wall_speedup"] == pytest.approx(1.1 / 0.6)
    # The ratio if the candidate's process had saved the copies of its outputs, which are half of what the null worker takes:
    assert record["certain_speedup"] == pytest.approx(1 / 0.55)
    assert (record["rounds"], record["calls_a_round"]) == (12, 10)


def test_a_reference_that_is_slower_beside_the_candidate_is_suspect() -> None:
    found = timing(1.9e-3, 1e-3, before=1e-3)
    assert found.verdict is Verdict.SUSPECT
    assert found.note == "the reference took 1 ms a call before the candidate was loaded, and at least 2 ms beside it"
    assert timing(1.05e-3, 0.9e-3, before=1e-3).verdict is Verdict.FASTER
    assert timing(2e-3, 4e-3, before=1e-3).verdict is Verdict.SLOWER  # the candidate gains nothing by it


def test_a_candidate_that_could_not_be_stopped_is_suspect() -> None:
    net = {"reference": 1e-3, "candidate": 0.9e-3, "control": 1e-3, "null": 0.0}
    times = {name: Times([net[name] + 1e-4] * 12, [net[name]] * 12, [net[name]] * 12) for name in SIDES}
    found = conclude(times, 5e-5, 1e-3, 10, "cuda", [], quiet=False)
    assert found.verdict is Verdict.SUSPECT
    assert "could not be stopped" in found.note


def test_faster_net_alone_is_not_faster() -> None:
    times = {name: Times([1.0e-3] * 12, [0.5e-3] * 12, [0.0] * 12) for name in SIDES}
    times["candidate"].rounds = [0.2e-3] * 12
    assert conclude(times, 1e-4, 1e-3, 10, "cuda", []).verdict is Verdict.INCONCLUSIVE


def test_a_call_that_is_too_short_to_tell_has_the_ratio_of_whole_windows() -> None:
    """It does not have 20 times that, which the least net time that is believed would give."""
    net = {"reference": 5e-2, "candidate": 0.05e-3, "control": 5e-2, "null": 0.0}
    times = {name: Times([net[name] + 0.95e-3] * 12, [net[name]] * 12, [net[name]] * 12) for name in SIDES}
    found = conclude(times, 1e-4, 5e-2, 10, "cuda", [])
    assert found.verdict is Verdict.FASTER
    assert [found.low, found.ratio, found.high] == pytest.approx([50.95] * 3)
    assert found.note.startswith("at least, by whole windows")


@pytest.mark.usefixtures("whole_windows")
def test_how_many_calls_a_window_has() -> None:
    def calls(seconds: float, slot: int, device: str = "cuda", most: int = 8 << 30) -> int:
        return calls_of_a_window(seconds, slot, 60 << 20, most, device)

    assert calls(1e-3, 64 << 20) == 20  # limited by time
    assert calls(2e-3, 1 << 20) == 50  # 100 ms of calls, whose data are a share of the caches
    assert calls(1e-4, 1 << 20) == 200
    assert calls(1e-3, 1 << 20) == 100
    assert calls(1e-5, 1000) == 1000
    assert calls(1e-3, 1 << 30) == 8  # limited by memory
    assert calls(1e-3, 8 << 30) == 2
    assert calls(0.2, 1000) == 2
    assert calls(2.0, 1000) == 1


@pytest.mark.usefixtures("whole_windows")
@pytest.mark.parametrize("call", [20e-6, 180e-6, 3e-3])
@pytest.mark.parametrize("tried", [1, 4])
@pytest.mark.parametrize("itself", [0.0, 1.3e-3, 10e-3])
def test_what_a_window_takes_by_itself_is_not_taken_for_its_calls(call: float, tried: int, itself: float) -> None:
    """On a card, mapping memory takes 1.3 ms of a window. `wanders`: by how much two windows differ besides."""
    tries, noise = [], random.Random(7)

    def cost(slots: int) -> float:
        tries.append(slots)
        wanders = noise.uniform(0, 0.3e-3)
        return itself + call if slots == 1 else max(call + wanders / (slots - 1), itself / (3 * slots))

    def calls_of(seconds: float) -> int:
        return calls_of_a_window(seconds, 32 << 20, 0, 8 << 30, "cuda")

    seconds, calls = estimated(cost, tried, calls_of, TARGET["cuda"])
    most = (8 << 30) // (32 << 20)
    assert 0.6 * min(0.02, call * most) < calls * call < 0.025
    assert call <= seconds < 3 * call
    assert len(tries) <= 4


def test_a_window_of_one_call_needs_no_other_estimate() -> None:
    tries: list[int] = []
    cost = lambda slots: tries.append(slots) or 0.7  # noqa: E731
    assert estimated(cost, 1, lambda seconds: 1, 0.02) == (0.7, 1)
    assert tries == [1]


def test_seconds_are_written_with_a_unit() -> None:
    assert [in_units(t) for t in (2.5, 0.00277, 3.21e-5, 4e-9)] == ["2.5 s", "2.77 ms", "32.1 µs", "4 ns"]
