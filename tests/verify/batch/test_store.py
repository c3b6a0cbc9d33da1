"""The folder that keeps a batch: leases, records, and what becomes of lost and foreign ones."""

from __future__ import annotations

import concurrent.futures
import json
import os
import threading
from pathlib import Path

import pytest

import mm32
from mm32.verify import NoReward, Report, Verdict
from mm32.verify.batch import command, store
from mm32.verify.batch.cards import chosen
from mm32.verify.batch.jobs import Options, in_folder, make
from mm32.verify.batch.records import SCHEMA, Lines, Reader, report_of, write_whole
from mm32.verify.batch.store import Store
from mm32.verify.batch.worker import Worker
from mm32.verify.entry import WrongArgument
from support.verify.batch import OTHER, WHO, old, opened

pytestmark = pytest.mark.usefixtures("no_gpu")


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


def test_a_run_does_its_own_jobs_only(scripts: tuple[Path, Path], tmp_path: Path) -> None:
    found = Store(tmp_path / "s", create=True)
    first = found.add(make(in_folder(*scripts), Options(timeout=45.0)))
    mine = {job.id for job in found.add(make(in_folder(*scripts), Options(timeout=3.0)))}
    assert not mine & {job.id for job in first}
    taken = [found.take(WHO, mine) for _ in range(3)]
    assert {lease.job.id for lease in taken if lease is not None} == mine
    assert taken[2] is None
    assert found.take(WHO) is not None, "a worker does all"


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
