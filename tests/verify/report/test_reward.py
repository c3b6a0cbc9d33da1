"""A report as a reward."""

from __future__ import annotations

import pickle

import pytest

from mm32.verify import NoReward, Report, Verdict


def test_rewards_are_for_what_is_proven() -> None:
    def report(verdict: Verdict, low: float = 0, high: float = 0) -> Report:
        timing = {"interval": [low, high]} if high else None
        return Report("r", "c", 0, verdict, "why", timing=timing)

    assert report(Verdict.FASTER, 1.5, 3).reward() == pytest.approx(1.8)
    assert report(Verdict.FASTER, 50, 60).reward(most=4) == pytest.approx(4.3)
    assert report(Verdict.INCONCLUSIVE, 0.5, 3).reward() == pytest.approx(1.3)
    assert report(Verdict.SLOWER, 0.2, 0.5).reward() == pytest.approx(0.8)
    assert report(Verdict.SUSPECT, 8, 9).reward() == pytest.approx(0.3)
    for verdict in (Verdict.DIFFERENT, Verdict.NOT_BUILT, Verdict.CRASHED, Verdict.TIMED_OUT):
        found = report(verdict).reward()
        assert (found, found.reason) == (0.0, f"{verdict.value}: why")
    assert report(Verdict.DIFFERENT).reward(wrong=-1) == -1
    for verdict in (Verdict.TOOL_FAILED, Verdict.REFERENCE_FAILED, Verdict.NO_VERDICT):
        with pytest.raises(NoReward) as caught:
            report(verdict).reward()
        assert caught.value.report.verdict is verdict
        assert pickle.loads(pickle.dumps(caught.value)).report.verdict is verdict  # as a pool of processes does it
    kept = pickle.loads(pickle.dumps(report(Verdict.FASTER, 1.5, 3).reward()))
    assert kept.reason == "SAME, FASTER: 0.3 + 1 * 1.5, the lower end of the interval"
