"""What the tests cost, by area: the sums, the limit, the record."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mm32.verify.processes.device_lock import DeviceLock
from support import shares, turns


def run(scale: float = 1.0) -> shares.Run:
    """Return a run of two processes: 10 s of numerics, 20 s of budgets, 5 s of slow budgets, 30 s of verify, and 4 s to start."""
    made = shares.Run()
    made.add({"tests/test_numerics.py::a": 10 * scale, "tests/test_resources.py::b": 20.0}, [], 10 * scale + 22)
    slow = "tests/test_resources.py::c"
    made.add({"tests/verify/test_tool.py::d[1]": 30 * scale, slow: 5.0}, [slow], 30 * scale + 7)
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(shares, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(shares, "STEPS", tmp_path / "steps")
    return tmp_path


@pytest.fixture
def made(folder: Path) -> dict[str, Any]:
    assert shares.main("lint", sys.executable, "-c", "sum(range(10**7))") == 0
    run().write({"passed": 4}, {"gpu": 7, "slow": 1}, 40.0, 2)
    found = shares.record()
    assert found is not None
    return found


def test_areas_are_those_of_files() -> None:
    assert shares.area("tests/verify/test_tool.py::test[a::b]") == "verify"
    assert shares.area("tests/test_dropin_gpu.py::test") == "drop-in"
    assert shares.area("tests/test_compile.py::test") == "kernels"
    assert shares.area("tests/test_compiled.py::test") == "operators"


def test_what_one_process_runs() -> None:
    timed, other = ["tests/verify/test_tool.py::a", "tests/verify/test_command.py::b"], "tests/test_nn.py::a[b::c]"
    assert {shares.together(nodeid) for nodeid in timed} == {"timed"}
    assert shares.together(other) == shares.together("tests/test_nn.py::d") == "tests/test_nn.py"
    alone = "tests/test_resources.py::a[b]"
    assert shares.together(alone) == alone
    assert [shares.rank(nodeid) for nodeid in (*timed, other, alone)] == [0, 0, 1, 2]


def test_with_a_gpu_each_test_is_given_out_alone() -> None:
    matmul, verify, timed = (
        "tests/test_matmul.py::a[b]",
        "tests/verify/test_on_gpu.py::a",
        "tests/verify/test_tool.py::a",
    )
    assert shares.together(matmul, spread=True) == matmul
    assert shares.together(verify, spread=True) == "tests/verify/test_on_gpu.py"
    assert shares.together(timed, spread=True) == "timed"
    assert [shares.rank(nodeid, spread=True) for nodeid in (timed, verify, matmul)] == [0, 1, 2]


def test_which_tests_need_the_card_for_themselves() -> None:
    alone = (
        "tests/verify/test_on_gpu.py::a",
        "tests/test_bench_sensors.py::a",
        "tests/test_launch.py::test_strides_past_2_to_31[a]",
    )
    assert all(map(shares.alone, alone))
    assert not any(map(shares.alone, ("tests/test_matmul.py::a", "tests/test_launch.py::test_captured_in_a_graph")))
    for start in shares.ALONE:
        path, _, name = start.partition("::")
        found = list((shares.ROOT / "tests").glob(path if path.endswith((".py", "/")) else f"{path}*.py"))
        assert found, f"{start}: renamed, or removed"
        assert not name or f"def {name}(" in found[0].read_text(), f"{start}: renamed, or removed"


class Card:
    """Stands in for torch.cuda, of a card with 24 GB."""

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def get_device_properties(index: int) -> Any:
        return SimpleNamespace(total_memory=24 * 2**30)

    @staticmethod
    def memory_reserved() -> int:
        return 0


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "cuda", Card)


def test_processes_share_a_card_as_far_as_its_memory_goes(card: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**26}[name])
    assert turns.workers() == 3


@pytest.mark.parametrize("alone", [False, True])
def test_a_test_that_needs_the_card_for_itself_waits(alone: bool, card: None, tmp_path: Path) -> None:
    other, ran = DeviceLock("tests", tmp_path), []

    def run() -> None:
        with turns.turn(tmp_path, alone):
            ran.append(alone)

    assert other.acquire_shared()
    thread = threading.Thread(target=run)
    thread.start()
    try:
        thread.join(0.3)
        assert ran == ([] if alone else [False])
    finally:
        other.release()
        thread.join(10)
    assert ran == [alone]


def test_files_whose_times_count_are_there() -> None:
    assert all((shares.ROOT / "tests" / f"{name}.py").exists() for name in shares.TIMED)


def test_every_area_has_tests() -> None:
    paths = [path.relative_to(shares.ROOT / "tests").as_posix() for path in (shares.ROOT / "tests").rglob("test_*.py")]
    assert {shares.area(path) for path in paths} == set(shares.AREAS.values())
    gone = [start for start in shares.AREAS if not any(path.startswith(start) for path in paths)]
    assert gone == [], "renamed, or removed: their tests count as operators'"


def test_processes_are_summed() -> None:
    assert run().areas() == {"numerics": 10, "budgets": 20, "verify": 30, shares.STARTING: 4}
    assert run().areas(slow=True) == {"budgets": 5}
    assert run().tests() == {"numerics": 1, "budgets": 2, "verify": 1}


def test_a_record_holds_each_areas_share(made: dict[str, Any]) -> None:
    assert made["areas"]["budgets"].items() >= {"tests": 2, "quick": 20, "slow": 5}.items()
    assert 0 < made["areas"]["lint"]["quick"] < 10
    assert made["seconds"] == {"quick": pytest.approx(64, abs=5), "slow": 5}
    assert sum(of["share"] for of in made["areas"].values()) == pytest.approx(1, abs=0.01)
    assert (made["outcomes"], made["left out"], made["workers"]) == ({"passed": 4}, {"gpu": 7, "slow": 1}, 2)
    assert shares.changed(made) == []
    made["sources"]["src/mm32"], made["sources"]["src/gone"] = "0" * 12, "1" * 12
    assert shares.changed(made) == ["src/gone", "src/mm32"]


def test_the_table_has_both(made: dict[str, Any]) -> None:
    lines = [line.split() for line in run(2.0).table(made)]
    assert lines[0] == ["area", "tests", "seconds", "share", "recorded"]
    assert lines[1][:3] == ["verify", "1", "60.0"]
    assert lines[1][4] == "30.0"
    assert {line[0] for line in lines[1:]} == set(made["areas"])
    assert [line.split()[-1] for line in run().table(None)[1:]] == ["-"] * 5


def test_only_far_more_than_recorded_is_too_much(made: dict[str, Any]) -> None:
    """Commands that are not tests are left out, and so are the budgets, whose cost depends on which kernels have changed."""
    assert run().excess(None) is None
    assert run(1.9).excess(made) is None
    assert run(2.2).excess(made) is None, "all areas alike: a slower machine"
    slower = run()
    slower.seconds = {name: seconds * (4 if "verify" in name else 1) for name, seconds in slower.seconds.items()}
    assert "the tests took 130 s of processors, more than 2 times the 44 s on record;" in (slower.excess(made) or "")
    slower.seconds = {name: seconds * 3 for name, seconds in slower.seconds.items()}
    assert "for a machine that is 3.0 times slower than it was" in (slower.excess(made) or "")


@pytest.mark.parametrize(
    ("asked", "all_of_them"),
    [
        ({}, True),
        ({"keyword": "links"}, False),
        ({"markexpr": "gpu"}, False),
        ({"deselect": ["a"]}, False),
        ({"lf": True}, False),
        ({"ignore": ["tests/verify"]}, False),
    ],
)
def test_what_a_run_of_all_tests_is(asked: dict[str, Any], all_of_them: bool) -> None:
    """Only a run of all tests is held to the record, and recorded."""
    options = {"keyword": "", "markexpr": "", "deselect": None, "lf": False} | asked
    config: Any = SimpleNamespace(
        option=SimpleNamespace(**options),
        args_source=pytest.Config.ArgsSource.TESTPATHS,
        ArgsSource=pytest.Config.ArgsSource,
    )
    assert shares.whole(config) == all_of_them
    config.args_source = pytest.Config.ArgsSource.ARGS
    assert not shares.whole(config)


def test_a_step_that_fails_says_so(folder: Path) -> None:
    assert shares.main("docs", sys.executable, "-c", "raise SystemExit(3)") == 3
    assert list(shares.steps()) == ["docs"]


def test_a_record_older_than_its_sources_is_said_so() -> None:
    """There is a warning then, because its times and counts are those of the tests as they were."""
    made = shares.record()
    if made is None:
        pytest.skip(f"there is no {shares.RECORD.name}: {shares.REMEDY}")
    assert made["outcomes"]["failed"] == 0
    assert sum(of["share"] for of in made["areas"].values()) == pytest.approx(1, abs=0.02)
    if old := shares.changed(made):
        warnings.warn(f"{shares.RECORD.name} is older than {', '.join(old)}: {shares.REMEDY}", stacklevel=1)
