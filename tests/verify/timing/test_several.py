"""Several processes of each side: the rule on simulated times, and what becomes of real ones."""

from __future__ import annotations

import math
import random
import statistics
import tempfile

import pytest

from mm32.verify.processes.channel import Failure
from mm32.verify.timing import kept_outputs, repeated, sequential, several
from mm32.verify.timing.repeated import Repetition
from mm32.verify.timing.rounds import SIDES, Times, Timing, conclude
from mm32.verify.timing.several import Group
from mm32.verify.timing.stage import TimingStage
from mm32.verify.verdict import Verdict
from support.verify.fixtures import Leftovers, Run
from support.verify.scripts import RIGHT, forward
from support.verify.simulated_processes import Card, by_one, by_several, rates

RUNS = 300


def of(ratio: float, control: float) -> Group:
    """Return a group whose ratio is the same by all windows as by the faster halves."""
    return Group(ratio, control, ratio)


@pytest.mark.parametrize("noise", [0.005, 0.02, 0.07])
@pytest.mark.parametrize(("apart", "normal"), [(0.0, False), (0.04, False), (0.02, True), (0.04, True)])
def test_identical_code_is_called_faster_or_slower_in_at_most_one_percent(
    noise: float, apart: float, normal: bool
) -> None:
    said = rates(by_several, 1.0, noise, apart, RUNS, normal)
    # The aim is at most 3 of 300 runs; chance makes up to 8 of that.
    assert said["faster"] + said["slower"] <= (8 if normal else 3) / RUNS


@pytest.mark.parametrize(("noise", "apart"), [(0.005, 0.04), (0.02, 0.04), (0.055, 0.02)])
def test_five_percent_faster_is_called_faster_though_processes_differ(noise: float, apart: float) -> None:
    said = rates(by_several, 1.05, noise, apart, RUNS)
    assert said["faster"] >= 0.95
    assert said["slower"] == 0
    assert rates(by_one, 1.05, noise, apart, RUNS)["faster"] < said["faster"] - 0.1


@pytest.mark.parametrize("late", [0.1, 0.4])
def test_noise_that_only_delays_makes_nobody_faster(late: float) -> None:
    card = Card(random.Random(1), 1.0, 0.02, 0.02, late=late)
    ratios = [several.group(*card.rounds(24)).ratio for _ in range(400)]
    assert abs(statistics.fmean(ratios)) < 4 * statistics.stdev(ratios) / math.sqrt(len(ratios))
    said = rates(by_several, 1.0, 0.02, 0.02, RUNS, late=late)
    assert said["faster"] + said["slower"] <= 5 / RUNS


@pytest.mark.parametrize(("reference", "candidate"), [(0.005, 0.04), (0.01, 0.06), (0.06, 0.01)])
def test_who_varies_more_is_not_faster_for_it(reference: float, candidate: float) -> None:
    """This holds though the faster half of its windows is faster, in every group."""
    chance = random.Random(f"{reference} {candidate}")
    said = []
    for _ in range(200):
        groups: list[Group] = []
        while len(groups) < several.MOST and not (len(groups) > 1 and several.is_over(groups)):
            sides = [
                [math.exp(chance.gauss(0, noise)) for _ in range(12)] for noise in (reference, reference, candidate)
            ]
            groups.append(several.group(*sides))
        said.append(several.look(groups, last=True).says)
    assert abs(statistics.fmean(one.ratio for one in groups)) > math.log(several.MARGIN)
    assert len(said) - said.count("unclear") <= 6


@pytest.mark.parametrize(("late", "told"), [(0.1, 0.9), (0.4, 0.3)])
def test_windows_that_are_late_hide_no_gain(late: float, told: float) -> None:
    """Half of the windows are late. The rule seldom bears more than a third that are late by much."""
    said = rates(by_several, 1.05, 0.01, 0.02, RUNS, late=late)
    assert said["faster"] >= told
    assert said["slower"] == 0


def test_what_is_clear_takes_one_group() -> None:
    for speed, word in ((1.3, "faster"), (0.75, "slower")):
        said = rates(by_several, speed, 0.02, 0.02, 50)
        assert (said[word], said["groups"]) == (1.0, 1.0)
        assert said["rounds"] == rates(by_one, speed, 0.02, 0.02, 50)["rounds"]


def test_a_group_takes_the_mean_of_both_processes_of_the_reference() -> None:
    found = several.group([1.21] * 5, [1.0] * 5, [1.0] * 5)
    assert found.ratio == pytest.approx(math.log(1.1))
    assert found.control == pytest.approx(math.log(1.21))


def test_the_interval_is_what_groups_and_controls_vary_by() -> None:
    groups = [of(0.05, 0.01), of(0.05, -0.01), of(0.05, 0.01), of(0.05, -0.01)]
    found = several.look(groups)
    error = math.sqrt(1.5 * (4 * 0.01**2 / 2) / 7 / 4)
    assert math.log(found.interval.low) == pytest.approx(0.05 - several.ERRORS[4] * error)
    assert (found.says, found.margin) == ("faster", several.MARGIN)
    # If the candidate's processes vary more than the reference's, that counts as it is.
    wild = [of(0.05 + x, 0.0) for x in (0.03, -0.03, 0.03, -0.03)]
    assert several.look(wild).says == "unclear"
    assert several.look([of(-one.ratio, one.control) for one in groups]).says == "slower"
    assert several.look(groups[:1]).says == "unclear"


def test_what_further_groups_could_not_make_clear_is_over() -> None:
    assert several.is_over([of(0.002, 0.0)])  # too small to tell
    assert several.is_over([of(0.3, 0.0)])  # too large to be due to processes
    assert not several.is_over([of(0.05, 0.01)])
    assert several.is_over([of(0.012, 0.15), of(-0.012, 0.15)])
    assert not several.is_over([of(0.06, 0.02), of(0.03, 0.02)])
    assert several.is_over([of(0.01, 0.01), of(-0.01, 0.01), of(0.01, 0.01), of(-0.01, 0.01)])
    assert several.is_over([of(0.03 * (i % 2), 0.04) for i in range(several.MOST)])
    # By all that is known from these, further ones will not be 5 % faster.
    assert several.is_over([of(0.012, 0.003), of(0.004, -0.003), of(-0.002, 0.003)])
    assert not several.is_over([of(0.012, 0.02), of(0.04, -0.02), of(0.012, 0.02)])


def test_a_difference_that_is_next_to_nothing_needs_no_more_rounds() -> None:
    noise = random.Random(4)

    def times(speed: float, spread: float, count: int) -> list[float]:
        return [math.exp(noise.gauss(0, spread)) / speed for _ in range(count)]

    def is_over(speed: float, spread: float, count: int) -> bool:
        sides = times(1.0, spread, count), times(1.0, spread, count), times(speed, spread, count)
        return several.first_is_over(*sides, "cuda")

    assert is_over(1.0, 0.01, 12)
    assert not is_over(1.0, 0.01, 8)  # at an early look, timing ends only if the result is clear
    assert not is_over(1.0, 0.2, 12)
    assert is_over(1.05, 0.005, 12)  # one good sample; further groups follow
    said = rates(by_several, 1.0, 0.02, 0.02, RUNS)
    assert said["rounds"] < 25
    assert said["faster"] + said["slower"] <= 3 / RUNS


def test_windows_that_vary_too_much_for_any_number_of_groups_are_hopeless() -> None:
    assert not several.is_hopeless(0.0, 0.03, 48)
    assert not several.is_hopeless(0.05, 0.2, 48)
    assert several.is_hopeless(0.0, 0.6, 48)
    assert several.is_hopeless(0.05, 0.3, several.FEWEST)
    assert not several.is_hopeless(0.14, 0.6, 48)


def test_how_many_rounds_a_group_needs_is_what_its_windows_vary_by() -> None:
    chance = random.Random(1)
    sides = [[math.exp(chance.gauss(0, 0.03)) for _ in range(400)] for _ in range(3)]
    each = several.noise(*sides)
    ratios = [several.group(*([chance.choice(side) for _ in range(16)] for side in sides)).ratio for _ in range(500)]
    assert each / math.sqrt(16) == pytest.approx(statistics.stdev(ratios), rel=0.15)
    assert several.rounds_needed(each) == math.ceil((each / several.PRECISE) ** 2)
    assert several.rounds_needed(0.0) == several.FEWEST
    assert several.rounds_needed(1.0) == several.ENOUGH


def first(ratio: float, a_round: float = 0.05) -> Timing:
    """Return the conclusion from twelve quiet rounds."""
    net = {"reference": 1e-3, "candidate": 1e-3 / ratio, "control": 1e-3, "null": 0.0}
    times = {name: Times([net[name] + 1e-4] * 12, [net[name]] * 12, [net[name]] * 12) for name in SIDES}
    made = conclude(times, 5e-5, 1e-3, 10, "cuda", [])
    made.a_round = a_round
    return made


def with_groups(made: Timing, *ratios: float, slowed: float = 1.0) -> Timing:
    repetition = Repetition(made, "cuda")
    for ratio in ratios:
        net = {"reference": slowed * 1e-3, "candidate": slowed * 1e-3 / ratio, "control": slowed * 1e-3}
        times = {name: Times([net[name] + 1e-4] * 12, [], [net[name]] * 12) for name in net}
        repetition.samples.append(repeated.Sample.of(times, made.null))
    return repetition.conclude()


def test_the_groups_decide() -> None:
    assert first(1.05).verdict is Verdict.FASTER  # so says one process of each side
    found = with_groups(first(1.05), 1.05, 1.051, 1.049)
    assert (found.verdict, found.note, found.margin) == (Verdict.FASTER, "", several.MARGIN)
    assert found.ratio == pytest.approx(1.05, abs=1e-3)
    assert [round(one["speedup"], 3) for one in found.record()["groups"]] == [1.05, 1.05, 1.051, 1.049]
    unclear = with_groups(first(1.05), 0.98, 1.03, 0.99)
    assert unclear.verdict is Verdict.INCONCLUSIVE
    assert unclear.note.endswith("of 4 groups of processes, contains 1")
    assert with_groups(first(0.95), 0.95, 0.951, 0.949).verdict is Verdict.SLOWER


def test_a_group_in_which_the_reference_was_slowed_is_suspect() -> None:
    found = with_groups(first(1.05), 1.05, 1.051, 1.049, slowed=1.6)
    assert found.verdict is Verdict.SUSPECT
    assert "before the candidate was loaded" in found.note


def test_no_group_begins_that_there_is_no_time_for() -> None:
    assert Repetition(first(1.05), "cuda").rounds() >= several.FEWEST
    assert Repetition(first(1.05, a_round=20.0), "cuda").rounds() == 0
    assert Repetition(first(1.5), "cuda").rounds() == 0
    waiting = Repetition(first(1.05), "cuda")
    waiting.begin -= 40.0
    assert waiting.rounds() == 0
    waiting.has_waited(40.0)  # it waited for other verifications, and did not time groups
    assert waiting.rounds() >= several.FEWEST
    late = Repetition(first(1.05), "cuda")
    late.begin -= repeated.BUDGET
    assert late.rounds() == 0
    assert late.conclude().verdict is Verdict.FASTER  # as one process of each side says


SLEEPS = """import time
import torch
from torch import nn


class {}(nn.Module):
    def forward(self, x):
        time.sleep({})
        return x + 1


def get_inputs():
    return [torch.rand(64, 64)]
"""


@pytest.mark.parametrize("after", [1.0, pytest.param(0.1, marks=pytest.mark.slow)])
def test_a_machine_that_has_become_slower_makes_nobody_suspect(
    run: Run, monkeypatch: pytest.MonkeyPatch, after: float
) -> None:
    """But if the reference is as fast as before once the candidate has ended, the candidate had slowed it."""
    time_alone, again = TimingStage.time_alone, TimingStage.alone_again

    def before(stage: TimingStage, **_: bool) -> None:
        time_alone(stage)
        stage.alone /= 10

    monkeypatch.setattr(TimingStage, "time_alone", before)
    monkeypatch.setattr(TimingStage, "alone_again", lambda stage: after * again(stage))
    report = run(SLEEPS.format("ModelNew", 0.0005), reference=SLEEPS.format("Model", 0.004))
    assert report.verdict is (Verdict.INCONCLUSIVE if after == 1.0 else Verdict.SUSPECT), report.reason
    assert ("the machine has become slower" in report.reason) is (after == 1.0)
    assert report.timing is not None
    assert report.timing["speedup"] > 2


# ---------------------------------------------------------------------------------------------------------- processes

# What the first process of a candidate leaves in its caches tells the later ones that they are not the first.
AGAIN = """
import os
mark = os.path.join(os.environ["XDG_CACHE_HOME"], "mark")
again = os.path.exists(mark)
os.makedirs(os.path.dirname(mark), exist_ok=True)
open(mark, "w").close()
"""


@pytest.fixture
def three_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every verification, on a CPU too, have three groups of few rounds."""
    monkeypatch.setattr(repeated, "DEVICES", ("cpu", "cuda"))
    monkeypatch.setattr(several, "first_is_over", lambda a, b, c, device: len(a) >= sequential.MIN_ROUNDS)
    monkeypatch.setattr(several, "is_over", lambda groups: len(groups) >= 3)
    monkeypatch.setattr(several, "rounds_needed", lambda noise: several.FEWEST)
    monkeypatch.setattr(several, "is_hopeless", lambda ratio, noise, count: False)
    monkeypatch.setattr(repeated, "is_floored", lambda side: False)


@pytest.mark.usefixtures("three_groups")
def test_fresh_processes_are_timed_and_judged_as_the_first(
    run: Run, leftovers: Leftovers, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(kept_outputs, "LATER", 0)  # otherwise chance decides how many there are
    report = run(RIGHT + "\nprint('hello')\n")
    assert report.verdict.same, report.reason
    assert report.timing is not None
    assert [one["rounds"] for one in report.timing["groups"][1:]] == [several.FEWEST] * 2
    assert report.timing["coverage"] == several.COVERAGE
    assert report.printed == "hello"
    assert not leftovers()
    assert not list(folder.glob("mm32-verify-*"))
    monkeypatch.setattr(repeated, "DEVICES", ())
    alone = run(RIGHT)
    # Of the first processes, three outputs at random and the farthest one are judged; of later ones, one and the farthest.
    assert len(report.timed_outputs) == 3 * len(alone.timed_outputs) - 2 * 2
    assert alone.timing is not None
    assert alone.timing["groups"] == []


@pytest.mark.usefixtures("three_groups")
@pytest.mark.parametrize("body", ["return C + again", "return C + (again and bool(A.min() < 0))"])
def test_what_is_wrong_in_a_later_process_is_different(run: Run, body: str) -> None:
    """This holds also if it is wrong only for data of probes, and so in windows that do not count."""
    report = run(forward("C = torch.relu(A.T @ B.T)\n" + body, AGAIN))
    assert report.verdict is Verdict.DIFFERENT
    assert "the output of a timed call" in report.reason


@pytest.mark.usefixtures("three_groups")
@pytest.mark.parametrize(
    ("line", "says"),
    [
        pytest.param("while again: pass", "no answer after", marks=pytest.mark.slow),
        ("if again: raise RuntimeError('no')", "no"),
    ],
)
def test_where_a_process_does_not_come_up_again_the_first_ones_decide(
    run: Run, monkeypatch: pytest.MonkeyPatch, line: str, says: str
) -> None:
    monkeypatch.setattr(repeated, "WITHIN", 3.0)
    report = run(forward("return torch.relu(A.T @ B.T)", AGAIN + line + "\n"))
    assert report.verdict.same, report.reason
    assert report.timing is not None
    assert report.timing["groups"] == []
    assert any("no more processes of both sides could be timed" in note and says in note for note in report.notes)


@pytest.mark.usefixtures("three_groups")
@pytest.mark.parametrize("on_card", [True, False])
def test_memory_of_the_card_that_later_windows_lack_is_not_the_candidates_doing(
    run: Run, monkeypatch: pytest.MonkeyPatch, on_card: bool
) -> None:
    """An honest copy of a norm of 7.5 GB got CRASHED for it: the process that judges held the memory that was missing."""

    def again(*_: object) -> list[kept_outputs.Kept]:
        raise Failure("memory", "no memory is left on the card for timed windows", {"on_card": on_card}, "candidate")

    monkeypatch.setattr(TimingStage, "again", again)
    report = run(RIGHT)
    assert report.verdict.same is on_card, report.reason
    if on_card:
        assert report.timing is not None
        assert report.timing["groups"] == []
        assert any("no more processes of both sides could be timed" in note for note in report.notes)


@pytest.mark.usefixtures("three_groups")
def test_a_candidate_that_crashes_in_a_later_window_has_crashed(run: Run) -> None:
    body = "count.append(1)\nif again and len(count) > 50: os.kill(os.getpid(), 11)\nreturn torch.relu(A.T @ B.T)"
    assert run(forward(body, AGAIN + "count = []\n")).verdict in (Verdict.CRASHED, Verdict.INCONCLUSIVE)


@pytest.mark.gpu
@pytest.mark.usefixtures("three_groups")
def test_fresh_processes_on_a_card(run: Run, leftovers: Leftovers) -> None:
    report = run(RIGHT)
    assert report.verdict.same, report.reason
    assert report.timing is not None
    assert len(report.timing["groups"]) == 3, report.notes
    assert report.stages["timing fresh processes"] < repeated.BUDGET, report.stages
    assert not leftovers()
