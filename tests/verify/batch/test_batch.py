"""Many candidates: the store and its leases, records, tables, KernelBench's layout, rewards; and whole runs, on the CPU."""

from __future__ import annotations

import concurrent.futures
import json
import os
import pickle
import socket
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import mm32
from mm32.cli import app
from mm32.verify import NoReward, Report, Verdict, verify, verify_many, work
from mm32.verify.batch import ahead, command, handle, kernelbench, pages, run, store, table, truths
from mm32.verify.batch import worker as worker_module
from mm32.verify.batch.cards import CPU, Card, chosen
from mm32.verify.batch.command import Progress, duration
from mm32.verify.batch.jobs import Options, Pair, in_folder, make
from mm32.verify.batch.records import SCHEMA, Lines, Reader, report_of, write_whole
from mm32.verify.batch.run import Batch
from mm32.verify.batch.store import Store
from mm32.verify.batch.worker import Worker
from mm32.verify.entry import WrongArgument
from mm32.verify.judging import pieces
from mm32.verify.processes import capacity, launch, process
from mm32.verify.processes.channel import Reply
from support.verify import reports as html_support
from support.verify.fixtures import HEAD, REFERENCE, RIGHT, Leftovers, forward

WHO = {"name": "w1", "host": "h1", "boot": "b", "pid": 1, "started": 0.0, "kind": "worker", "cards": ["h1:cpu"]}
OTHER = {**WHO, "name": "w2", "host": "h2", "cards": ["h2:cpu"]}


@pytest.fixture(autouse=True)
def no_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def scripts(tmp_path: Path) -> tuple[Path, Path]:
    """Return a reference, and a folder with two candidates."""
    folder = tmp_path / "candidates"
    folder.mkdir()
    (tmp_path / "reference.py").write_text(REFERENCE)
    (folder / "a.py").write_text(RIGHT)
    (folder / "b.py").write_text(forward("return torch.zeros(64, 96)"))
    return tmp_path / "reference.py", folder


def opened(scripts: tuple[Path, Path], folder: Path, lease_s: float = 100.0) -> Store:
    found = Store(folder, create=True, lease_s=lease_s)
    found.add(make(in_folder(*scripts), Options()))
    return found


def old(path: Path, seconds: float = 1000) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


# ---------------------------------------------------------------------------------------------------------- jobs


def test_jobs_are_told_apart_by_contents_and_options(scripts: tuple[Path, Path]) -> None:
    reference, folder = scripts
    pairs = in_folder(reference, folder)
    assert [pair.name for pair in pairs] == ["a.py", "b.py"]
    first, again, other = make(pairs, Options()), make(pairs, Options()), make(pairs, Options(trials=2))
    assert [job.id for job in first] == [job.id for job in again]
    assert not {job.id for job in first} & {job.id for job in other}
    assert first[0].seed == first[1].seed  # one reference in one run has one seed
    assert first[0].seed != again[0].seed  # a new run has a seed that no candidate has met
    (folder / "a.py").write_text(RIGHT + "\n")
    changed = make(pairs, Options())
    assert changed[0].id != first[0].id
    assert changed[1].id == first[1].id
    reference.write_text(REFERENCE + "\n")
    assert make(pairs, Options())[1].id != first[1].id


def test_pages_of_a_batch_lead_to_one_another(scripts: tuple[Path, Path], tmp_path: Path) -> None:
    reference, folder = scripts
    jobs = {job.id: job for job in make(in_folder(reference, folder), Options())}
    right, wrong = jobs
    records = [
        {"id": right, "report": html_support.record()},
        {"id": wrong, "report": html_support.record("tile")},
    ]
    Path(jobs[wrong].candidate).write_text("# not what was verified\n")
    index = tmp_path / "all.html"
    for _ in range(2):  # the second time over what is there
        pages.write(index, jobs, records)
    table = index.read_text()
    for id_, name in ((right, "a.py"), (wrong, "b.py")):
        assert f'href="./all-pages/{id_}.html"' in table
        page = (tmp_path / "all-pages" / f"{id_}.html").read_text()
        assert 'href="./../all.html"' in page
        assert name in table
    assert "class ModelNew" in (tmp_path / "all-pages" / f"{right}.html").read_text()
    assert "not what was verified" not in (tmp_path / "all-pages" / f"{wrong}.html").read_text()


def test_a_reference_among_the_candidates_is_none(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(REFERENCE)
    with pytest.raises(WrongArgument, match="there are no candidates"):
        in_folder(tmp_path / "reference.py", tmp_path)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"trials": 0}, "trials must be an integer, 1 at least, got 0"),
        ({"timeout": -1.0}, "timeout must be a positive number"),
        ({"baselines": ("eager", "fast")}, "baselines are some of eager, compile, tf32"),
        ({"baselines": ("eager", "eager")}, "each once"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(WrongArgument, match=says):
        Options(**options)


def test_cards_that_are_not_there_are_refused() -> None:
    assert chosen(None) == [Card(CPU, "")]
    with pytest.raises(WrongArgument, match="there are 0 cards here, 2 were asked for"):
        chosen("2")
    with pytest.raises(WrongArgument, match="a number or"):
        chosen("both")


# ---------------------------------------------------------------------------------------------------------- records


def test_a_torn_last_line_is_left_out_and_the_rest_is_read(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "r.jsonl", worker="w")
    reader = Reader(tmp_path / "r.jsonl")
    lines.append({"id": "1"})
    with (tmp_path / "r.jsonl").open("ab") as file:
        file.write(b'{"id": "2", "rep')
    assert [record["id"] for record in reader.new()] == ["1"]
    assert list(reader.new()) == []
    with (tmp_path / "r.jsonl").open("ab") as file:
        file.write(b'ort": 0}\n')
    assert [record["id"] for record in reader.new()] == ["2"]
    assert json.loads((tmp_path / "r.jsonl").read_text().splitlines()[0])["schema"] == SCHEMA


def test_a_report_survives_its_record() -> None:
    report = Report("r.py", "c.py", 7, Verdict.FASTER, "why", notes=["n"])
    report.timing = {"speedup": 2.0, "interval": [1.5, float("inf")]}
    again = report_of(json.loads(json.dumps({"report": report.as_dict()})))
    assert (again.verdict, again.seed, again.notes) == (Verdict.FASTER, 7, ["n"])
    assert again.timing == {"speedup": 2.0, "interval": [1.5, "inf"]}
    assert again.reward() == pytest.approx(0.3 + 1.5)


# ---------------------------------------------------------------------------------------------------------- leases


def test_a_job_has_one_worker_at_a_time(scripts: tuple[Path, Path], tmp_path: Path) -> None:
    mine, theirs = opened(scripts, tmp_path / "s"), Store(tmp_path / "s")
    first, second = mine.take(WHO), theirs.take(OTHER)
    assert first is not None
    assert second is not None
    assert {first.job.name, second.job.name} == {"a.py", "b.py"}
    assert mine.take(WHO) is None
    mine.leave([first], WHO)  # given back: it counts as never taken
    again = theirs.take(OTHER)
    assert again is not None
    assert (again.job.name, again.attempt) == (first.job.name, 1)


def test_one_of_many_takers_gets_a_job(scripts: tuple[Path, Path], tmp_path: Path) -> None:
    opened(scripts, tmp_path / "s")
    takers = [Store(tmp_path / "s") for _ in range(8)]
    barrier = threading.Barrier(8)

    def take(one: Store) -> object:
        barrier.wait()
        return one.take(WHO)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert sum(lease is not None for lease in pool.map(take, takers)) == 2


def test_a_dead_workers_candidate_is_tried_once_more_and_then_recorded(
    scripts: tuple[Path, Path], tmp_path: Path
) -> None:
    (scripts[1] / "b.py").unlink()
    found = opened(scripts, tmp_path / "s")
    lease = found.take(WHO)
    assert lease is not None
    lease.begin()
    assert Store(tmp_path / "s").take(OTHER) is None  # the worker that holds it is alive
    old(lease.path)
    assert Store(tmp_path / "s").take(OTHER) is None  # this call notes the failure
    second = Store(tmp_path / "s").take(OTHER)
    assert second is not None
    assert second.attempt == 2
    assert second.failures == [
        {"reason": "worker w1 on h1 was no longer there", "worker": "w1", "host": "h1", "card": "h1:cpu"}
    ]
    second.begin()
    old(second.path)
    third = Store(tmp_path / "s")
    assert third.take(WHO) is None
    assert third.take(WHO) is None
    (record,) = third.new_records()
    assert record["report"]["verdict"] == "TOOL_FAILED"
    assert record["report"]["reason"] == (
        "tried twice: on w1 h1:cpu: worker w1 on h1 was no longer there; then on w2 h2:cpu: worker w2 on h2 was no longer there"
    )
    assert third.done() == {lease.job.id}
    with pytest.raises(NoReward, match="TOOL FAILED: tried twice"):
        report_of(record).reward()


def test_what_waited_with_a_dead_worker_was_not_tried(scripts: tuple[Path, Path], tmp_path: Path) -> None:
    (scripts[1] / "b.py").unlink()
    found = opened(scripts, tmp_path / "s")
    lease = found.take(WHO)
    assert lease is not None
    old(lease.path)
    again = Store(tmp_path / "s").take(OTHER)
    assert again is not None
    assert again.attempt == 1


def test_the_end_of_the_whole_tool_is_no_attempt(scripts: tuple[Path, Path], tmp_path: Path) -> None:
    """If a run on this machine was killed, its process is gone, and no candidate did that."""
    (scripts[1] / "b.py").unlink()
    found = opened(scripts, tmp_path / "s")
    ended = {**store.me("run"), "name": "old", "cards": ["x"], "pid": 2**22 + 1}
    lease = found.take(ended)
    assert lease is not None
    lease.begin()
    again = Store(tmp_path / "s").take(OTHER)
    assert again is not None
    assert (again.attempt, again.failures) == (1, [])


def test_what_failed_on_a_card_is_left_to_another_one(scripts: tuple[Path, Path], tmp_path: Path) -> None:
    (scripts[1] / "b.py").unlink()
    found = opened(scripts, tmp_path / "s")
    lease = found.take(WHO)
    assert lease is not None
    lines = found.lines(WHO)
    assert not found.fail(lines, lease, WHO, "the card hangs", "h1:cpu")
    found.beat([], OTHER)
    assert found.take(WHO) is None
    old(tmp_path / "s" / "workers" / "w2.json")  # nobody else is there any more
    again = found.take(WHO)
    assert again is not None
    assert again.attempt == 2


def test_a_store_that_was_moved_finds_its_scripts_where_they_are(scripts: tuple[Path, Path], tmp_path: Path) -> None:
    before = opened(scripts, tmp_path / "store").jobs()
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in (scripts[0], scripts[1], tmp_path / "store"):
        path.rename(moved / path.name)
    here = (moved / scripts[0].name, moved / scripts[1].name)
    found = opened(here, moved / "store")
    assert found.jobs().keys() == before.keys()
    for id_, job in found.jobs().items():
        assert (Path(job.reference), Path(job.candidate).parent) == here
        assert job.seed == before[id_].seed
    assert len(list((moved / "store" / "jobs").iterdir())) == 1, "nothing was added"


def test_a_job_whose_record_is_lost_is_done_again(scripts: tuple[Path, Path], tmp_path: Path) -> None:
    kept = opened(scripts, tmp_path / "store")
    first, second = kept.jobs().values()
    lines = kept.lines(WHO)
    for _ in range(2):
        lease = kept.take(WHO)
        assert lease is not None
        kept.finish(lines, lease, WHO, Report("r", "c", 1, Verdict.DIFFERENT, "wrong").as_dict(), "h1:cpu")
    lines.close()
    whole = lines.path.read_text().splitlines()
    lost = json.loads(whole[2])["id"]
    lines.path.write_text("\n".join([*whole[:2], whole[2][:40]]) + "\n")
    assert kept.take(WHO) is None
    assert Store(kept.folder).reopen([first.id, second.id]) == [lost]
    assert Store(kept.folder).reopen([first.id, second.id]) == []
    lease = Store(kept.folder).take(WHO)
    assert lease is not None
    assert (lease.job.id, lease.attempt) == (lost, 1)


def test_jobs_of_another_version_are_left_alone(
    scripts: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = opened(scripts, tmp_path / "store")
    monkeypatch.setattr(mm32, "__version__", "9.9")
    other = Store(kept.folder)
    assert other.jobs() == {}
    assert list(other.foreign.values()) == [2]
    with pytest.raises(WrongArgument, match=r"submitted 2 by mm32 .*; this is 9\.9: use the same version"):
        command.work(kept.folder, None, None)


def test_fields_that_are_not_known_are_left_out(scripts: tuple[Path, Path], tmp_path: Path) -> None:
    kept = opened(scripts, tmp_path / "store")
    (path,) = (kept.folder / "jobs").glob("*.jsonl")
    head, *jobs = path.read_text().splitlines()
    path.write_text("\n".join([head, *(json.dumps({**json.loads(job), "priority": 1}) for job in jobs), "{}"]) + "\n")
    (kept.folder / "records" / "odd.jsonl").write_text("{}\n")
    again = Store(kept.folder)
    assert again.jobs() == kept.jobs()
    assert list(again.new_records()) == []


def test_what_is_the_machines_fault_is_given_back(scripts: tuple[Path, Path], tmp_path: Path) -> None:
    """A worker that does not see some scripts gives these jobs back and does the others; one that sees none gives up."""
    kept = opened(scripts, tmp_path / "store")
    other = tmp_path / "others"
    other.mkdir()
    for name in "cde":
        (other / f"{name}.py").write_text(f"class ModelNew({name}")
    kept.add(make(in_folder(scripts[0], other), Options()))
    scripts[1].rename(tmp_path / "away")
    with pytest.raises(RuntimeError, match=r"this machine cannot do the rest: .* cannot be read"):
        Worker(kept, chosen(None)).run()
    assert sorted(kept.jobs()[id_].name for id_ in kept.done()) == ["c.py", "d.py", "e.py"]
    scripts[0].rename(tmp_path / "gone")
    kept.add(make(in_folder(tmp_path / "gone", tmp_path / "away"), Options(trials=2)))
    (tmp_path / "gone").rename(tmp_path / "further")
    with pytest.raises(RuntimeError, match=r"this machine cannot do the work: .* cannot be read"):
        Worker(kept, chosen(None)).run()
    assert len(kept.done()) == 3


def test_a_folder_that_is_no_store_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(WrongArgument, match="not empty"):
        Store(tmp_path, create=True)
    with pytest.raises(WrongArgument, match=r"no store\.json"):
        Store(tmp_path)


# ---------------------------------------------------------------------------------------------------------- tables


def row(verdict: Verdict, speedup: float | None = None, low: float | None = None, **fields: Any) -> table.Row:
    return table.Row("id", "name.py", verdict, "", 1.0, speedup, low, low and 2 * low, **fields)


ROWS = [
    row(Verdict.FASTER, 2.5, 2.2),
    row(Verdict.FASTER, 1.4, 1.1),
    row(Verdict.INCONCLUSIVE, 1.2, 0.9),
    row(Verdict.SLOWER, 0.4, 0.3),
    row(Verdict.SUSPECT, 9.0, 8.0),
    row(Verdict.DIFFERENT, 5.0, 4.0),
    row(Verdict.NOT_BUILT),
    row(Verdict.TOOL_FAILED),
]


def test_fast_p_is_the_share_of_correct_ones_that_are_faster_than_p() -> None:
    assert [table.fast_p(ROWS, p) for p in (0, 0.5, 1, 1.4, 2)] == [5 / 8, 3 / 8, 3 / 8, 1 / 8, 1 / 8]
    assert table.fast_p(ROWS, 1, of=30) == 0.1
    assert [table.proven_p(ROWS, p) for p in (1, 1.5, 2, 3)] == [2 / 8, 1 / 8, 1 / 8, 0]
    assert table.fast_p([], 1) == 0


def test_the_exit_code_is_as_asked() -> None:
    assert table.exit_code(ROWS, "worst") == 70
    assert table.exit_code(ROWS[:4], "worst") == 3
    assert table.exit_code(ROWS[:1], "worst") == 0
    assert table.exit_code(ROWS[:7], "tool") == 0
    assert table.exit_code(ROWS, "tool") == 70
    assert table.exit_code(ROWS, "none") == 0


def test_the_table_has_a_row_for_each_and_what_was_to_be_beaten() -> None:
    found = table.lines([row(Verdict.FASTER, 2.5, 2.2, others={"compile": 0.9})])
    assert found[1].split() == ["name.py", "SAME,", "FASTER", "2.50x", "2.20", "..", "4.40", "1.0"]
    assert found[3] == "1 candidates: 1 SAME, FASTER"
    assert "fast_1 1.000" in found[4]
    assert found[4].endswith("(eager torch is what was to be beaten)")
    assert found[-1] == "against compile: 0 correct and faster"


def test_a_long_reason_ends_between_words_and_says_where_the_rest_is() -> None:
    long = "the candidate was ended while comparing, trial 3 of 3: " + "no answer after a long time; " * 9
    rows = [row(Verdict.TIMED_OUT), row(Verdict.TIMED_OUT)]
    rows[0] = replace(rows[0], reason=long)
    rows[1] = replace(rows[1], reason="x" * table.WHY)
    found = table.lines(rows, whole="store/results.jsonl")
    shown = found[1][found[1].index("the candidate") :]
    assert shown.endswith("…")
    assert long.startswith(shown[:-1])
    assert long[len(shown) - 1] in " ,;:"
    assert len(shown) <= table.WHY
    assert found[2].endswith("x" * table.WHY)
    assert found[3:5] == ["", "1 of the reasons is shortened (…): in full in store/results.jsonl"]
    assert not any("shortened" in line for line in table.lines(rows[1:], whole="store/results.jsonl"))
    word = replace(rows[0], reason="y" * 500)
    assert table.lines([word])[1].endswith("  " + "y" * (table.WHY - 1) + "…")


def test_progress_has_a_rate_and_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("mm32.verify.batch.command.time.monotonic", lambda: now[0])
    progress = Progress(40, 10)
    assert progress.line() == "10 of 40"
    now[0] = 60.0
    for _ in range(6):
        progress.finished("x", True)
    progress.told("y.py", "timing\x1b")
    assert progress.line() == "16 of 40, 6.0 a minute, 4 min left | y.py: timing\\x1b"
    assert [duration(s) for s in (45, 600, 12000)] == ["45 s", "10 min", "3 h 20 min"]


# ---------------------------------------------------------------------------------------------------------- rewards


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


# ---------------------------------------------------------------------------------------------------------- KernelBench


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """Return the folder of a KernelBench run, with two of the three problems of one level."""
    problems = tmp_path / "KernelBench" / "level1"
    problems.mkdir(parents=True)
    for name in ("1_Product.py", "2_Other.py", "10_More.py"):
        (problems / name).write_text(REFERENCE)
    made = tmp_path / "runs" / "mine"
    made.mkdir(parents=True)
    for problem, sample, source in ((1, 0, RIGHT), (1, 1, forward("return torch.zeros(64, 96)")), (10, 0, "def (")):
        (made / f"level_1_problem_{problem}_sample_{sample}_kernel.py").write_text(source)
    (made / "eval_results.json").write_text("{}")
    return made


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


# ---------------------------------------------------------------------------------------------------------------------
# Odd files, and stores with jobs of others


def test_a_script_that_cannot_be_taken_is_named(tmp_path: Path) -> None:
    reference = tmp_path / "reference.py"
    reference.write_text(REFERENCE)
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.py"))
    odd.write_text(RIGHT)
    with pytest.raises(WrongArgument, match="is not UTF-8: rename it"):
        make([Pair(reference, odd, odd.name)], Options())
    with pytest.raises(WrongArgument, match="cannot be read: Is a directory"):
        make([Pair(reference, tmp_path, "folder")], Options())


def test_a_run_does_its_own_jobs_only(scripts: tuple[Path, Path], tmp_path: Path) -> None:
    found = Store(tmp_path / "s", create=True)
    first = found.add(make(in_folder(*scripts), Options(timeout=45.0)))
    mine = {job.id for job in found.add(make(in_folder(*scripts), Options(timeout=3.0)))}
    assert not mine & {job.id for job in first}
    taken = [found.take(WHO, mine) for _ in range(3)]
    assert {lease.job.id for lease in taken if lease is not None} == mine
    assert taken[2] is None
    assert found.take(WHO) is not None, "a worker does all"


def test_no_builders_are_refused(scripts: tuple[Path, Path], tmp_path: Path) -> None:
    for builders in (-2, 0, 1.5):
        with pytest.raises(WrongArgument, match="builders must be an integer, 1 at least"):
            Worker(opened(scripts, tmp_path / str(builders)), chosen(0), builders)  # type: ignore[arg-type]


def test_a_file_that_is_a_link_or_no_file_is_written_through(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    link.symlink_to(target)
    write_whole(link, "a")
    assert link.is_symlink()
    assert target.read_text() == "a"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_text)
        write_whole(pipe, "b")
        assert read.result(10) == "b"
    assert pipe.is_fifo()


def test_a_name_cannot_forge_a_line_of_the_table() -> None:
    name = "a.py\n  b.py  SAME, FASTER  9.99x\n\n1 candidates: 1 SAME, FASTER .py"
    found = table.lines([replace(row(Verdict.NOT_BUILT), name=name)])
    assert not [line for line in found if line.lstrip().startswith(("b.py", "1 candidates: 1 SAME, FASTER"))]


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


# ---------------------------------------------------------------------------------------------------------- sharing


class Asked:
    """A reference's process that counts the truths that it is asked for."""

    def __init__(self) -> None:
        self.truths = 0

    def ask(self, op: str, value: Any = None, **fields: Any) -> Reply:
        self.truths += op == "truth"
        value = {"construct": {"init": [], "state": {"w": torch.ones(2)}}, "truth": torch.full((2,), self.truths)}.get(
            op
        )
        if op in ("make_inputs", "forward"):
            value = [torch.full((3,), float(fields["seed"]))]
        return Reply({}, value)


def test_truths_are_found_by_what_they_follow_from(tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(REFERENCE)
    kept = truths.Truths()

    def answers(seed: int, adopt: bool = False) -> int:
        worker = Asked()
        kept.watch(worker, str(tmp_path / "r.py"))  # type: ignore[arg-type]
        worker.ask("construct", seed=1)
        worker.ask("make_inputs", seed=seed)
        if adopt:
            worker.ask("adopt")
        worker.ask("forward", seed=seed)
        worker.ask("truth", seed=seed)
        return worker.truths

    assert [answers(1), answers(1), answers(2), answers(2), answers(1)] == [1, 0, 1, 0, 0]
    assert [answers(1, adopt=True), answers(1, adopt=True)] == [1, 1]  # the data are not known, so nothing is kept
    assert (kept.found, kept.asked) == (3, 7)
    (tmp_path / "r.py").write_text(REFERENCE + "\n")
    assert answers(1) == 1
    kept.most = 0
    kept._keep(("x",), Reply({}, torch.ones(4)))
    assert ("x",) not in kept.answers


def test_large_contents_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    value = [torch.ones(1 << 10), 3]
    monkeypatch.setattr(truths, "LARGEST", (4 << 10) - 1)
    assert truths.fingerprint(value) != truths.fingerprint(value)
    monkeypatch.setattr(truths, "LARGEST", 4 << 10)
    assert truths.fingerprint(value) == truths.fingerprint(value)


@pytest.mark.parametrize("op", ["make_inputs", "forward"])
def test_answers_to_large_data_are_neither_found_nor_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str
) -> None:
    """A second process of the reference with the same data is asked anew; later answers to small data are found again."""
    (tmp_path / "r.py").write_text(REFERENCE)
    kept = truths.Truths()
    monkeypatch.setattr(truths, "LARGEST", 1 << 20)

    def answers(large: bool) -> int:
        worker = Asked()
        plain = worker.ask

        def ask(asked: str, value: object = None, **fields: object) -> Reply:
            reply = plain(asked, value, **fields)
            return Reply(reply.header, torch.ones(1 << 19)) if large and asked == op else reply

        worker.ask = ask  # type: ignore[method-assign]
        kept.watch(worker, str(tmp_path / "r.py"))  # type: ignore[arg-type]
        for name in ("construct", "make_inputs", "forward", "truth"):
            worker.ask(name, seed=1)
        return worker.truths

    assert [answers(True), answers(True)] == [1, 1]
    assert not kept.answers
    assert [answers(False), answers(False)] == [1, 0]
    assert (kept.found, kept.asked) == (1, 4)


def test_fingerprints_tell_contents_apart() -> None:
    one = torch.arange(6.0)
    different = [one, one.reshape(2, 3), one.double(), one + 1, [one], {"a": one}, one.int(), 1, 1.0, True, "1", None]
    assert len({truths.fingerprint(value) for value in different}) == len(different)
    assert truths.fingerprint([one, (2, "x")]) == truths.fingerprint([one.clone(), (2, "x")])
    assert truths.fingerprint(one.reshape(2, 3).T) == truths.fingerprint(one.reshape(2, 3).T.contiguous())


@pytest.mark.parametrize("entries", [0, 1, 5, truths.ROW, truths.ROW + 1, 100_003])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.float64])
def test_what_stands_for_a_cards_tensor_tells_it_apart(entries: int, dtype: torch.dtype) -> None:
    values = torch.randint(0, 256, (entries * dtype.itemsize,), dtype=torch.uint8)
    found = truths.condensed(values.view(dtype))
    assert found.numel() <= truths.ROW
    assert torch.equal(found, truths.condensed(values.clone().view(dtype)))
    for place in {0, len(values) // 2, len(values) - 1} if entries else ():
        other = values.clone()
        other[place] ^= 1 << place % 8
        assert not torch.equal(found, truths.condensed(other.view(dtype))), place
    if entries > 1:
        assert not torch.equal(found, truths.condensed(values.roll(1).view(dtype)))


# ---------------------------------------------------------------------------------------------------------- capacity


def test_as_many_run_at_once_as_there_are_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "count", lambda of: 3)
    at_once, most, lock = [0], [0], threading.Lock()
    waited: list[float] = []

    def call(_: int) -> None:
        with capacity.place(waited.append, tmp_path) as number:
            assert 0 <= number < 3
            with lock:
                at_once[0] += 1
                most[0] = max(most[0], at_once[0])
            time.sleep(0.02)
            with lock:
                at_once[0] -= 1

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(call, range(16)))
    assert most == [3]
    assert waited


def test_where_nothing_can_be_locked_nobody_waits(tmp_path: Path) -> None:
    with capacity.place(folder=tmp_path / "none") as number:
        assert number == -1


def test_the_places_are_those_of_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity.os.path, "exists", lambda path: True)
    for visible, card in (("3,1", "3"), ("", "cpu"), ("-1", "cpu"), ("GPU-ab", "GPU-ab")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert capacity.card() == card
    assert capacity.count("3") == 2
    assert capacity.count("cpu") >= 2


# ---------------------------------------------------------------------------------------------------------- whole runs


def test_candidates_are_verified_and_kept(scripts: tuple[Path, Path], tmp_path: Path, leftovers: Leftovers) -> None:
    """Candidates are right, wrong, do not build, or need what they built ahead; then all is read again from the store."""
    reference, folder = scripts
    (folder / "c.py").write_text("def (")
    # The process that is judged finds in the caches what building has left there. It has not built it itself.
    built = (
        "import os, pathlib, time\n"
        "kept = pathlib.Path(os.environ['TORCH_EXTENSIONS_DIR']) / 'mine' / 'built'\n"
        "found = kept.exists() and kept.read_text() != str(os.getpid()) + str(time.time_ns())\n"
        "if not found:\n    kept.parent.mkdir(parents=True)\n    kept.write_text(str(os.getpid()))\n"
    )
    (folder / "d.py").write_text(forward("assert found\nreturn torch.zeros(64, 96)", built))
    pairs = [(reference, path) for path in sorted(folder.glob("*.py"))]
    with verify_many(pairs, trials=2, timeout=60, store=tmp_path / "store") as reports:
        assert len(reports) == 4
        found = {Path(report.candidate).name: report for report in reports}
    assert found["a.py"].verdict.same, found["a.py"].reason
    assert found["b.py"].verdict is Verdict.DIFFERENT
    assert found["c.py"].verdict is Verdict.NOT_BUILT
    assert found["d.py"].verdict is Verdict.DIFFERENT, found["d.py"].reason
    assert len({report.seed for report in found.values()}) == 1
    assert found["b.py"].reward() == 0.0
    assert found["a.py"].reward() >= 0.3
    assert [t["same"] for t in found["a.py"].trials] == [True, True]
    assert not leftovers()
    begin = time.monotonic()
    again = {
        Path(report.candidate).name: report
        for report in verify_many(pairs, trials=2, timeout=60, store=tmp_path / "store")
    }
    assert time.monotonic() - begin < 5
    assert {name: report.verdict for name, report in again.items()} == {
        name: report.verdict for name, report in found.items()
    }
    assert Store(tmp_path / "store").take(WHO) is None


EXTENSION = """
import glob, os, time
from torch.utils.cpp_extension import load_inline
began = time.time()
source = "torch::Tensor product(torch::Tensor a, torch::Tensor b) { return torch::relu(torch::matmul(a.t(), b.t())); }"
built = load_inline(name="built", cpp_sources=source, functions=["product"])
objects = glob.glob(os.environ["TORCH_EXTENSIONS_DIR"] + "/**/*.o", recursive=True)
compiled_ahead = bool(objects) and all(os.path.getmtime(path) < began for path in objects)
"""


@pytest.mark.slow
def test_what_load_inline_compiles_is_compiled_ahead(tmp_path: Path) -> None:
    """What the builder compiles with a C++ compiler is not compiled again by the process that is judged."""
    (tmp_path / "reference.py").write_text(REFERENCE)
    body = "assert compiled_ahead, 'compiled again'\nreturn built.product(A, B)"
    (tmp_path / "candidate.py").write_text(forward(body, EXTENSION))
    with verify_many([(tmp_path / "reference.py", tmp_path / "candidate.py")], trials=1) as reports:
        (report,) = reports
    assert report.verdict.same, report.reason


def test_a_folder_that_was_replaced_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate that is not root may have put a link to somewhere else in its folder's place."""
    monkeypatch.setattr(process.tempfile, "mkdtemp", lambda prefix: str(made.mkdir() or made))
    made, other = tmp_path / "new", tmp_path / "other"
    other.mkdir()
    (other / "precious").touch()
    link, whole = tmp_path / "link", tmp_path / "whole"
    link.symlink_to(other)
    whole.mkdir()
    built = ahead.Built(str(link), "caches")
    ahead._check_folder(built)
    assert (built.folder, built.caches) == (str(made), "")
    kept = ahead.Built(str(whole), "caches")
    ahead._check_folder(kept)
    assert (kept.folder, kept.caches) == (str(whole), "caches")
    for folder in (link, whole):
        (whole / "left" / "over").mkdir(parents=True, exist_ok=True)
        (whole / "a link").symlink_to(other) if folder is whole else None
        worker = object.__new__(process.WorkerProcess)
        worker.given, worker.folder = True, folder
        worker._remove_folder()
    assert list(whole.iterdir()) == []
    assert (other / "precious").exists()


BREAKING = (
    "import sys, json, os, time; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from mm32.verify.batch import judged, runner; whole = judged.verify_job\n"
    "def broken(job, *rest):\n"
    "    where = os.environ['CUDA_VISIBLE_DEVICES']\n"
    "    if job.name.endswith('dies.py') or (job.name.endswith('dies_on_a.py') and where == 'a'): os._exit(9)\n"
    "    if job.name.endswith('hangs.py'): time.sleep(1000)\n"
    "    if job.name.endswith('raises.py'): raise RuntimeError('CUDA error: unspecified launch failure')\n"
    "    return whole(job, *rest)\n"
    "judged.verify_job = broken; runner.main(sys.argv[1:])"
)


@pytest.mark.slow
def test_a_tool_that_breaks_costs_one_candidate(
    scripts: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leftovers: Leftovers
) -> None:
    """If the runners of two "cards" die, hang or raise at some candidates, those are tried on the other; the rest is done."""
    reference, folder = scripts
    for name in ("dies.py", "dies_on_a.py", "hangs.py", "raises.py"):
        (folder / name).write_text(RIGHT)
    monkeypatch.setattr(handle, "BOOT", BREAKING)
    found = Store(tmp_path / "store", create=True)
    jobs = {job.id: job for job in found.add(make(in_folder(reference, folder), Options(trials=1, timeout=60)))}
    worker = Worker(found, [Card("a", "a"), Card("b", "b")], builders=1, silence=20)
    worker.run()
    records = {jobs[record["id"]].name: record for record in Store(tmp_path / "store").new_records()}
    assert set(records) == {path.name for path in folder.glob("*.py")}
    reports = {name: report_of(record) for name, record in records.items()}
    assert reports["a.py"].verdict.same
    assert reports["b.py"].verdict is Verdict.DIFFERENT
    assert reports["dies_on_a.py"].verdict.same
    for name, says in (
        ("dies.py", "its process ended with exit code 9"),
        ("hangs.py", "it said nothing for 20 s: the card or the process hangs"),
        ("raises.py", "CUDA error: unspecified launch failure"),
    ):
        assert reports[name].verdict is Verdict.TOOL_FAILED
        assert reports[name].reason.count(says) == 2, reports[name].reason
        assert {failure["card"] for failure in records[name]["failures"]} == {"a", "b"}
    assert not leftovers()


def test_a_card_has_two_runners_and_the_cpu_one(
    scripts: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runners are stand-ins. Where there are two, the job of one waits until that of the other has begun."""
    reference, folder = scripts
    for name in "cdef":
        (folder / f"{name}.py").write_text(RIGHT)

    def most_at_once(card: Card, store: Path) -> int:
        at_work: list[int] = []
        together, least = 0, threading.Barrier(2)

        class StandIn:
            def __init__(self, card: Card, *_: object) -> None:
                pass

            def verify(self, order: dict, told: object) -> dict:
                nonlocal together
                at_work.append(1)
                with suppress(threading.BrokenBarrierError):
                    least.wait(2.0 if card.name != CPU else 0.1)
                together = max(together, len(at_work))
                at_work.pop()
                report = Report(reference="r", candidate="c", seed=0)
                report.verdict = Verdict.INCONCLUSIVE
                return {"report": report.as_dict(), "suspicious": False}

            def close(self) -> None:
                pass

        monkeypatch.setattr(worker_module, "Runner", StandIn)
        monkeypatch.setattr(worker_module, "build", lambda job, *_: ahead.Built(str(tmp_path / job.id)))
        found = Store(store, create=True)
        jobs = found.add(make(in_folder(reference, folder), Options(trials=1)))
        Worker(found, [card], builders=4).run()
        assert len(list(Store(store).new_records())) == len(jobs) == 6
        return together

    assert most_at_once(Card("GPU-1", "0"), tmp_path / "card") == 2
    assert most_at_once(Card(CPU, ""), tmp_path / "cpu") == 1


def test_the_processes_of_a_batch_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def of(cores: int, cards: int) -> int | None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
        return worker_module.threads_for([Card(f"GPU-{i}", str(i)) for i in range(cards)])

    # Each card has two runners, and each runner has three processes.
    assert [of(64, 4), of(64, 1), of(16, 1), of(8, 1), of(8, 8), of(1, 1)] == [2, 10, 2, 1, 1, 1]
    assert worker_module.threads_for([Card(CPU, "")]) is None  # there, one process at a time is timed, with all cores
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert of(64, 4) is None  # the user's own setting counts


THREADS = "'threads in each process:', torch.get_num_threads(), os.environ.get('OMP_NUM_THREADS')"
TELLS = f"import os, torch\nprint({THREADS})\n{RIGHT}"
REFUSES = f"import os, torch\nraise SyntaxError(' '.join(map(str, ({THREADS}))))\n"


@pytest.mark.slow
def test_the_processes_of_a_batch_have_their_share(
    scripts: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are the process that builds a candidate, the one that judges it, and the reference's, which the report shows.

    The "card" is the CPU.
    """
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    reference, folder = scripts
    (folder / "a.py").write_text(TELLS)
    (folder / "b.py").write_text(REFUSES)
    found = Store(tmp_path / "s", create=True)
    jobs = {job.id: job.name for job in found.add(make(in_folder(reference, folder), Options(trials=1)))}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(11)))
    Worker(found, [Card("a", "")], builders=1).run()
    assert "OMP_NUM_THREADS" not in os.environ
    reports = {jobs[record["id"]]: report_of(record) for record in Store(tmp_path / "s").new_records()}
    assert reports["a.py"].verdict.same, reports["a.py"].reason
    assert reports["a.py"].environment["threads"] == 1
    assert "threads in each process: 1 1" in reports["a.py"].printed
    assert reports["b.py"].verdict is Verdict.NOT_BUILT
    assert "threads in each process: 1 1" in reports["b.py"].reason


@pytest.mark.slow
def test_what_the_user_says_of_threads_counts(
    scripts: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    reference, folder = scripts
    (folder / "b.py").unlink()
    found = Store(tmp_path / "s", create=True)
    found.add(make(in_folder(reference, folder), Options(trials=1)))
    Worker(found, [Card("a", "")], builders=1).run()
    (record,) = Store(tmp_path / "s").new_records()
    assert record["report"]["environment"]["threads"] == 1


@pytest.mark.parametrize(("said", "found"), [("1", 1), ("1,2", 1), ("", 0), ("0", 0), ("many", 0), ("4096", 0)])
def test_judging_takes_the_cores_of_its_process(said: str, found: int) -> None:
    there = min(os.cpu_count() or 1, pieces.MOST_CORES)
    assert pieces.cores({"OMP_NUM_THREADS": said}) == (found or there)
    assert pieces.cores({}) == there


def test_what_lacked_memory_is_tried_again_alone(
    scripts: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference, folder = scripts
    for name in "cdef":
        (folder / f"{name}.py").write_text(RIGHT)
    at_work: list[str] = []
    beside: dict[str, list[int]] = {}

    class StandIn:
        def __init__(self, *_: object) -> None:
            pass

        def verify(self, order: dict, told: object) -> dict:
            name = order["job"]["name"]
            at_work.append(name)
            time.sleep(0.05)
            beside.setdefault(name, []).append(len(at_work))
            at_work.remove(name)
            report = Report(reference="r", candidate="c", seed=0)
            first = len(beside[name]) == 1
            report.verdict = Verdict.REFERENCE_FAILED if first and name in ("a.py", "d.py") else Verdict.INCONCLUSIVE
            return {
                "report": report.as_dict(),
                "suspicious": False,
                "short": report.verdict is Verdict.REFERENCE_FAILED,
            }

        def close(self) -> None:
            pass

    monkeypatch.setattr(worker_module, "Runner", StandIn)
    monkeypatch.setattr(worker_module, "build", lambda job, *_: ahead.Built(str(tmp_path / job.id)))
    found = Store(tmp_path / "s", create=True)
    found.add(make(in_folder(reference, folder), Options(trials=1)))
    Worker(found, [Card("GPU-1", "0")], builders=4).run()
    verdicts = {record["report"]["verdict"] for record in Store(tmp_path / "s").new_records()}
    assert verdicts == {"INCONCLUSIVE"}
    assert {name: len(times) for name, times in beside.items()} == {f"{n}.py": 1 + (n in "ad") for n in "abcdef"}
    assert beside["a.py"][1] == beside["d.py"][1] == 1  # the second time alone


def test_a_runner_that_dies_in_the_second_try_leaves_no_verdict_of_the_first(
    scripts: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference, folder = scripts
    (folder / "b.py").unlink()
    tries: list[int] = []

    class StandIn:
        def __init__(self, *_: object) -> None:
            pass

        def verify(self, order: dict, told: object) -> dict:
            tries.append(1)
            if len(tries) == 2:
                raise handle.Broken("its process died")
            report = Report(reference="r", candidate="c", seed=0)
            report.verdict = Verdict.CRASHED if len(tries) == 1 else Verdict.INCONCLUSIVE
            return {"report": report.as_dict(), "suspicious": False, "short": len(tries) == 1}

        def close(self) -> None:
            pass

    monkeypatch.setattr(worker_module, "Runner", StandIn)
    monkeypatch.setattr(worker_module, "build", lambda job, *_: ahead.Built(str(tmp_path / job.id)))
    found = Store(tmp_path / "s", create=True)
    found.add(make(in_folder(reference, folder), Options(trials=1)))
    Worker(found, [Card("GPU-1", "0")], builders=1).run()
    (record,) = Store(tmp_path / "s").new_records()
    assert record["report"]["verdict"] == "INCONCLUSIVE"
    assert len(tries) == 3


def test_a_worker_refuses_scripts_that_have_changed(scripts: tuple[Path, Path], tmp_path: Path) -> None:
    reference, folder = scripts
    (folder / "b.py").unlink()
    found = opened((reference, folder), tmp_path / "s")
    (folder / "a.py").write_text(RIGHT + "\n# later\n")
    Worker(found, chosen(None), kind="worker").run()
    (record,) = Store(tmp_path / "s").new_records()
    assert record["report"]["verdict"] == "TOOL_FAILED"
    assert record["report"]["reason"].count("a.py has other contents than when the job was made") == 2


def test_pairs_that_cannot_be_read_are_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no script"):
        verify_many([(tmp_path / "r.py", tmp_path / "c.py")])
    for given in ("candidate.py", ["candidate.py"], [("r.py", "c.py", "d.py")]):
        with pytest.raises(ValueError, match=r"takes pairs of paths, \(reference, candidate\), got .*py'"):
            verify_many(given)  # type: ignore[arg-type]
    assert run.of_pairs([]) == []
    assert list(verify_many([])) == []
    assert Pair(tmp_path, tmp_path, "x").place == {}


def test_a_process_that_sees_no_card_is_not_tried_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise no level of confinement would work for builders, and what is known about them would be used for others."""
    monkeypatch.setattr(launch, "_has_cuda", lambda: True)
    monkeypatch.setattr(launch, "_works", {})
    tried: list[bool] = []
    here = launch.Launched(socket.socketpair()[0], 0, -1, 0, [])

    def attempt(server: object, order: dict[str, Any], fds: object, waiting: object) -> launch.Launched:
        tried.append(order["try_cuda"])
        return here

    monkeypatch.setattr(launch, "_attempt", attempt)
    for visible in ({"CUDA_VISIBLE_DEVICES": ""}, {}, {"CUDA_VISIBLE_DEVICES": "1"}, {"CUDA_VISIBLE_DEVICES": ""}):
        order = {"confined": True, "environment": visible}
        assert launch._confined(None, order, [], lambda: None) is here  # type: ignore[arg-type]
    assert tried == [False, True, False, False]


# ---------------------------------------------------------------------------------------------------------- baselines


@pytest.mark.slow
def test_baselines_are_timed_and_the_first_decides(scripts: tuple[Path, Path]) -> None:
    """On the CPU, torch.compile compiles the reference by its C++ compiler; TF32 exists only on a GPU."""
    reference, folder = scripts
    report = verify(reference, folder / "a.py", trials=1, baselines=("compile", "eager", "tf32"))
    assert report.verdict.same, report.reason
    assert report.baseline == "compile"
    assert set(report.baselines) == {"eager", "tf32"}
    assert report.baselines["eager"]["speedup"] > 0
    assert Verdict[report.baselines["eager"]["verdict"]].same
    assert "there is no such baseline on a CPU" in report.baselines["tf32"]["failed"]


def test_tf32_that_decides_is_refused_at_once_where_no_card_is(
    scripts: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call refuses it, a batch before it writes anything, and a worker, whose records would stand for those with a card."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("mm32.verify.batch.cards.found", list)
    reference, folder = scripts
    said = "baseline tf32 decides and needs a GPU, and none is used here: put eager or compile first"
    begun = time.monotonic()
    with pytest.raises(WrongArgument, match=said):
        verify(reference, folder / "a.py", baselines=("tf32", "eager"))
    with pytest.raises(WrongArgument, match=said):
        verify_many([(reference, folder / "a.py")], baselines=("tf32",), store=tmp_path / "store")
    assert not (tmp_path / "store").exists()
    pairs = in_folder(reference, folder)
    Batch(pairs, Options(baselines=("tf32",)), tmp_path / "store", submit=True).close()  # for workers with cards
    with pytest.raises(WrongArgument, match=said):
        work(tmp_path / "store")
    assert Store(tmp_path / "store").done() == set()
    assert time.monotonic() - begun < 5
    Worker(Store(tmp_path / "store"), [Card("GPU-1", "GPU-1", "9.0")])
    for arguments in ([str(folder / "a.py")], [str(folder)]):
        done = CliRunner().invoke(
            app, ["verify", str(reference), *arguments, "--baseline", "tf32"], env={"COLUMNS": "400"}
        )
        assert done.exit_code == 2
        assert said in done.output


# ---------------------------------------------------------------------------------------------------------- callers


def call(arguments: tuple[str, str, int]) -> tuple[int, str]:
    """Verify one candidate, in a thread or a process of the test."""
    reference, candidate, number = arguments
    return number, verify(reference, candidate, trials=1).verdict.name


def test_a_few_threads_may_call_at_once(scripts: tuple[Path, Path], leftovers: Leftovers) -> None:
    reference, folder = scripts
    orders = [(str(reference), str(folder / "b.py"), number) for number in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(call, orders)) == [(number, "DIFFERENT") for number in range(4)]
    assert not leftovers()


@pytest.mark.slow
def test_64_callers_in_threads_and_processes(scripts: tuple[Path, Path], leftovers: Leftovers) -> None:
    """48 threads here and two processes with 16 calls, all at once: each call gets its own verdict."""
    import multiprocessing

    reference, folder = scripts
    (folder / "c.py").write_text(HEAD)
    right = {"a.py": {v.name for v in Verdict if v.same}, "b.py": {"DIFFERENT"}, "c.py": {"NOT_BUILT"}}
    names = [("b.py", "c.py", "b.py", "a.py")[number % 4] for number in range(64)]
    orders = [(str(reference), str(folder / name), number) for number, name in enumerate(names)]
    spawned = multiprocessing.get_context("spawn")
    with (
        concurrent.futures.ThreadPoolExecutor(48) as threads,
        concurrent.futures.ProcessPoolExecutor(2, mp_context=spawned) as processes,
    ):
        answers = [threads.submit(call, order) for order in orders[:48]]
        answers += [processes.submit(call, order) for order in orders[48:]]
        found = dict(answer.result(timeout=560) for answer in answers)
    assert set(found) == set(range(64))
    for number, name in enumerate(names):
        assert found[number] in right[name]


# ---------------------------------------------------------------------------------------------------------- on a card


@pytest.mark.gpu
def test_a_batch_on_a_card(tmp_path: Path, leftovers: Leftovers) -> None:
    """A file that mm32 exports, built ahead by nvcc, and plain ones are timed against eager torch and torch in TF32."""
    from mm32.export import export

    large = REFERENCE.replace("M, K, N = 64, 80, 96", "M, K, N = 1024, 4096, 2048")
    (tmp_path / "reference.py").write_text(large)
    folder = tmp_path / "candidates"
    folder.mkdir()
    sources = {
        "exported.py": export("tt", m=1024, n=2048, k=4096, activation="relu", kernel="simt"),
        "torch.py": RIGHT,
        "zeros.py": forward("return torch.zeros(1024, 2048, device=A.device)"),
        "tf32.py": forward("return torch.relu(A.T @ B.T)", "torch.backends.cuda.matmul.allow_tf32 = True"),
        "fault.py": forward("return torch.relu(A.T @ B.T)[torch.full((1024,), 10**6, device=A.device)]"),
    }
    for name, source in sources.items():
        (folder / name).write_text(source)
    pairs = [(tmp_path / "reference.py", path) for path in sorted(folder.iterdir())]
    with verify_many(pairs, trials=2, gpus=1, baselines=("eager", "tf32"), store=tmp_path / "store") as reports:
        found = {Path(report.candidate).name: report for report in reports}
    assert found["exported.py"].verdict.same, found["exported.py"].reason
    assert found["torch.py"].verdict in (Verdict.INCONCLUSIVE, Verdict.SUSPECT), found["torch.py"].reason
    assert found["torch.py"].baselines["tf32"]["speedup"] < 1
    assert found["zeros.py"].verdict is Verdict.DIFFERENT
    assert found["tf32.py"].verdict is Verdict.DIFFERENT
    assert found["fault.py"].verdict is Verdict.CRASHED
    assert {report.environment["card"] for report in found.values() if report.environment} != set()
    (record,) = [one for one in Store(tmp_path / "store").new_records() if one["name"].endswith("exported.py")]
    assert record["card"].startswith("GPU-")
    assert not leftovers()
