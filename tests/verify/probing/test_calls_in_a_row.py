"""State and random numbers that go on from call to call, other strides, and shapes that depend on data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from mm32.verify import Verdict
from mm32.verify.probing import calls_in_a_row, strides
from mm32.verify.timing.kept_outputs import Misfit
from support.verify.fixtures import Run
from support.verify.scripts import HEAD

Judge = Callable[..., tuple[str, str, Any]]
SMALL = "[torch.randn(8, 32)]"


def test_calls_in_a_row_draw_on_where_inputs_are_made_anew_for_each(
    verdict: Judge,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Large inputs are made so. get_inputs() is the reference's, and its draws do not concern the candidate."""
    monkeypatch.setattr(calls_in_a_row, "MOST_BYTES", 0)
    got, reason, report = verdict(
        "return torch.nn.functional.dropout(x, 0.25)",
        "return torch.empty_like(x).bernoulli_(0.75).div_(0.75).mul_(x)",
        "[torch.randn(64, 64)]",
    )
    assert got == "SAME", reason
    assert probe(report, "in a row")["status"] == "same"


def probe(report: Any, name: str) -> dict[str, Any]:
    (found,) = (one for one in report.probes if one["name"] == name)
    return dict(found)


# ---------------------------------------------------------------------------------------------------- state

LAST = "self.register_buffer('m', torch.zeros(32)); self.register_buffer('n', torch.zeros((), dtype=torch.long))"
AVERAGE = "self.n += 1; self.m += (x.mean(0) - self.m) / self.n; return x - self.m"


@pytest.mark.parametrize(
    "wrong",
    [
        "self.n += 1; self.m.copy_(x.mean(0)); return x - self.m",  # the mean of this call alone
        "y = getattr(self, 'y', x); self.y = x.clone(); self.n += 1; z = x if self.n == 1 else y; "
        "self.m += (z.mean(0) - self.m) / self.n; return x - self.m",  # the mean of the data of the call before
    ],
)
def test_what_is_carried_over_from_other_data_is_compared(wrong: str, verdict: Judge) -> None:
    got, reason, report = verdict(AVERAGE, wrong, SMALL, init=LAST)
    assert got == "DIFFERENT"
    assert reason.startswith("probe 'in a row': call 2 in a row"), reason
    right = AVERAGE.replace("(x.mean(0) - self.m) / self.n", "(x.mean(0) - self.m) * (1.0 / self.n)")
    got, reason, report = verdict(AVERAGE, right, SMALL, init=LAST)
    assert got == "SAME", reason
    assert probe(report, "in a row")["status"] == "same"


@pytest.mark.parametrize("until", [2, 9, 40, 64])
def test_every_call_of_a_row_counts(until: int, verdict: Judge) -> None:
    wrong = AVERAGE.replace("self.m +=", f"self.m += (self.n < {until}) *")
    got, reason, _ = verdict(AVERAGE, wrong, SMALL, init=LAST)
    assert got == "DIFFERENT"
    assert f"call {until} in a row" in reason or until > calls_in_a_row.ALL_CALLS, reason


# ---------------------------------------------------------------------------------------------------- random numbers

NOISE = "return x + torch.randn_like(x)"
# `on`: whether the generator is in the state that the last call left, so that nobody has seeded it since.
SINCE = "s = torch.get_rng_state(); on = torch.equal(s, getattr(self, 's', s[:1])); "
KEEP = "self.s = torch.get_rng_state(); "


@pytest.mark.parametrize(
    "later",
    ["e = 0 * torch.randn_like(x)", "e = -self.e; torch.randn_like(x)", "e = self.e; torch.randn_like(x)"],
)
def test_numbers_of_later_calls_under_one_seed_are_compared(later: str, verdict: Judge) -> None:
    if not later.startswith("e = 0"):
        assert "torch.randn_like(x)" in later  # its generator is then in the same state as the reference's
    body = f"{SINCE}e = torch.randn_like(x) if not on else None\n        if on: {later}\n        self.e = e; {KEEP}return x + e"
    got, reason, _ = verdict(NOISE, body, SMALL)
    assert got == "DIFFERENT"
    assert reason.startswith("probe 'in a row': call 2 in a row"), reason


def test_a_generator_that_is_elsewhere_is_asked_for_numbers_that_do_not_depend_on_each_other(
    verdict: Judge,
) -> None:
    large = "[torch.randn(64, 256)]"
    got, reason, report = verdict(NOISE, "e = torch.randn_like(x); torch.rand(1); return x + e", large)
    assert got == "SAME", reason
    assert probe(report, "in a row")["status"] == "same"
    body = f"{SINCE}odd = on and not getattr(self, 'odd', False); self.odd = odd; "
    body += f"e = -self.e if odd else torch.randn_like(x); torch.rand(1); self.e = e; {KEEP}return x + e"
    got, reason, _ = verdict(NOISE, body, large)
    assert got == "DIFFERENT"
    assert "depend on each other" in reason
    body = f"{SINCE}e = self.e if on else torch.randn_like(x); torch.rand(1); self.e = e; {KEEP}return x + e"
    assert "the same random numbers again" in verdict(NOISE, body, large)[1]


def test_distances_tell_only_where_the_references_are_alike() -> None:
    assert calls_in_a_row.dependent([1.0, 1.05, 1.1], [1.0, 1.08, 1.1]) == ""
    assert "0.71 to 1 apart" in calls_in_a_row.dependent([1.0, 1.05, 1.1], [0.71, 1.0])
    assert "1 to 1.41 apart" in calls_in_a_row.dependent([1.0, 1.05, 1.1], [1.0, 1.41])
    assert calls_in_a_row.dependent([1.0, 3.0], [0.1, 9.0]) == ""  # as for a loss, which is one number
    assert calls_in_a_row.dependent([0.0, 1.0], [0.1, 9.0]) == ""
    assert calls_in_a_row.dependent([1.0, 1.1], [math.nan]) != ""


def test_generators_of_numpy_and_python_are_seeded_for_the_float64_run_too(verdict: Judge) -> None:
    noisy = "import random, numpy; return torch.tanh(x) * (1 + random.random() + float(numpy.random.rand()))"
    got, reason, report = verdict(noisy, noisy, SMALL)
    assert got == "SAME", reason
    assert {"Python's random", "numpy.random"} <= set(report.problem["draws"])
    assert report.trials[0]["reference"]["normwise"] < 1e-6
    got, _, _ = verdict(noisy, noisy.replace("1 + random.random()", "1.5"), SMALL)
    assert got == "DIFFERENT"


# ---------------------------------------------------------------------------------------------------- strides


def test_the_same_values_lie_otherwise_in_memory() -> None:
    x = torch.randn(3, 4, 5)
    turned = strides.turned(x)
    assert torch.equal(turned, x)
    assert turned.stride() == (20, 1, 4)
    for same in (torch.randn(5), torch.randn(4, 1), x.transpose(1, 2), 3.0):
        assert strides.turned(same) is same


def test_a_product_of_more_axes_is_tried_with_other_strides(verdict: Judge) -> None:
    inputs = "[torch.rand(4, 48, 64), torch.rand(64, 32)]"
    got, reason, report = verdict("return a @ b", "return torch.einsum('nmk,kl->nml', a, b)", inputs, arguments="a, b")
    assert got == "SAME", reason
    assert next(p for p in report.probes if p["name"] == "other strides")["status"] == "same"


def test_inputs_of_other_strides(verdict: Judge) -> None:
    right = "return torch.softmax(x, 1)"
    got, reason, report = verdict(right, "return torch.softmax(x.as_strided(x.shape, (x.shape[1], 1)), 1)", SMALL)
    assert got == "SAME", reason
    assert strides.ASSUMES in report.left_out
    got, reason, report = verdict(right, "assert x.is_contiguous(); return torch.softmax(x, 1)", SMALL)
    assert got == "SAME", reason
    assert strides.RAISES in report.left_out
    assert probe(report, "other strides")["status"] == "skipped"
    got, reason, report = verdict(right.replace("x, 1", "x.view(-1).view(8, 32), 1"), right, SMALL)
    assert (got, probe(report, "other strides")["status"]) == ("SAME", "skipped")
    assert strides.RAISES not in report.left_out
    got, reason, report = verdict(right, right, SMALL)
    assert (got, probe(report, "other strides")["status"]) == ("SAME", "same")


# ---------------------------------------------------------------------------------------------------- shapes

# The second output has another length for few data of the script's own, or only for data of probes.
SELDOM = "{head}\nclass {name}(nn.Module):\n    def forward(self, x):\n        return x * 2, x[:{rows}] + 1\n{inputs}"
INPUTS = "\ndef get_inputs():\n    return [torch.rand(64, 64)]\n"


def seldom(name: str, rows: str, inputs: str = "") -> str:
    return SELDOM.format(head=HEAD, name=name, rows=rows, inputs=inputs)


@pytest.mark.parametrize("rows", ["1 + int(x[0, 0] > 0.97)", "1 + int(x.max() > 50)"])
def test_shapes_that_depend_on_the_data_are_not_timed(run: Run, rows: str) -> None:
    report = run(seldom("ModelNew", rows), reference=seldom("Model", rows, INPUTS))
    assert report.verdict is Verdict.INCONCLUSIVE, report.reason
    assert report.reason.startswith("not timed: the shapes of the reference's outputs depend on its data")
    assert report.reason.count("the reference's") == 1


def test_another_shape_than_the_references_for_the_same_data_is_different(run: Run) -> None:
    report = run(seldom("ModelNew", "1"), reference=seldom("Model", "1 + int(x.max() > 50)", INPUTS))
    assert report.verdict is Verdict.DIFFERENT, report.reason
    # The reference's shape is always the same, and the candidate's differs only in a timed call.
    counts = "1 + int(sum(self.calls) > 400)"
    source = seldom("ModelNew", counts).replace(
        "        return", "        self.calls = getattr(self, 'calls', []) + [1]\n        return"
    )
    report = run(source, reference=seldom("Model", "1", INPUTS))
    assert report.verdict is Verdict.DIFFERENT, report.reason


def test_whose_output_it_was_and_for_which_calls() -> None:
    misfit = Misfit("control", "output is (1,), the reference's is (2,)", [(((0,),), 7, "")])
    assert (misfit.role, misfit.calls, str(misfit)) == (
        "control",
        [(((0,),), 7, "")],
        "output is (1,), the reference's is (2,)",
    )
    assert Misfit("candidate", "no output").calls == []


def test_an_output_that_the_next_call_overwrites_is_named(verdict: Judge) -> None:
    static = """if not hasattr(self, "y"):
            self.y = torch.empty_like(x)
        return torch.mul(x, 3, out=self.y)"""
    got, _, report = verdict("return x * 3", static, SMALL)
    assert got == "SAME"
    assert any("kept over the next call" in one for one in report.left_out)
    got, _, report = verdict(static, static, SMALL)  # the reference overwrites its output too
    assert not any("kept over the next call" in one for one in report.left_out)
    got, _, report = verdict("return x * 3", "return x + x + x", SMALL)
    assert got == "SAME"
    assert not any("kept over the next call" in one for one in report.left_out)
