"""KernelBench's layout, and results in its form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mm32.verify import Report, Verdict
from mm32.verify.batch import kernelbench
from mm32.verify.entry import WrongArgument
from support.verify.fixtures import REFERENCE, RIGHT

pytestmark = pytest.mark.usefixtures("no_gpu")


def test_kernelbenchs_layout_is_found(bench: Path) -> None:
    pairs = kernelbench.pairs(bench)
    assert [tuple(pair.place.values()) for pair in pairs] == [(1, 1, 0), (1, 1, 1), (1, 10, 0)]
    assert [pair.reference.name for pair in pairs] == ["1_Product.py", "1_Product.py", "10_More.py"]
    assert kernelbench.tasks(pairs) == 3
    (bench / "level_1_problem_7_sample_0_kernel.py").write_text(RIGHT)
    with pytest.raises(WrongArgument, match="there is no problem 7 in"):
        kernelbench.pairs(bench)
    (bench / "level_1_problem_7_sample_0_kernel.py").unlink()
    (bench.parent.parent / "KernelBench" / "level1" / "10_Again.py").write_text(REFERENCE)
    with pytest.raises(WrongArgument, match=r"has two problems 10: 10_Again\.py and 10_More\.py"):
        kernelbench.pairs(bench)
    with pytest.raises(WrongArgument, match="there is no level_L_problem_P_sample_S_kernel"):
        kernelbench.pairs(bench.parent)


def test_results_have_kernelbenchs_form() -> None:
    def record(verdict: Verdict, problem: int, sample: int, timing: Any = None) -> dict[str, Any]:
        report = Report("r", "c", 0, verdict, "why", timing=timing, environment={"card": "H", "device": "cuda:0"})
        return {"place": {"level": 2, "problem": problem, "sample": sample}, "report": report.as_dict()}

    times = {"reference": {"rounds_s": [0.004, 0.006]}, "candidate": {"rounds_s": [0.001, 0.003]}}
    found = kernelbench.results(
        [record(Verdict.NOT_BUILT, 10, 0), record(Verdict.FASTER, 9, 1, times), record(Verdict.DIFFERENT, 9, 0)]
    )
    assert list(found) == [2]
    entries = json.loads(found[2])
    assert list(entries) == ["9", "10"]
    first, second = entries["9"]
    assert (first["sample_id"], first["compiled"], first["correctness"], first["runtime"]) == (0, True, False, -1.0)
    assert (second["compiled"], second["correctness"]) == (True, True)
    assert second["runtime"] == pytest.approx(2.0)  # milliseconds
    assert second["runtime_stats"] == pytest.approx({"mean": 2.0, "std": 1.0, "min": 1.0, "max": 3.0, "num_trials": 2})
    assert second["ref_runtime"] == pytest.approx(5.0)
    assert (second["metadata"]["hardware"], second["metadata"]["mm32_verdict"]) == ("H", "SAME, FASTER")
    assert entries["10"][0]["compiled"] is False


def test_kernelbenchs_candidates_are_files_and_each_is_one(bench: Path) -> None:
    run = bench
    (run / "level_1_problem_7_sample_5_kernel.py").mkdir()
    before = kernelbench.pairs(run)
    assert not any(pair.place["sample"] == 5 for pair in before)
    first = before[0].place
    twice = run / f"level_{first['level']}_problem_0{first['problem']}_sample_{first['sample']}_kernel.py"
    twice.write_text(RIGHT)
    with pytest.raises(WrongArgument, match="twice"):
        kernelbench.pairs(run)
