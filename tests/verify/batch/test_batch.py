"""Whole batches on the CPU: workers, builders and runners, baselines, many callers."""

from __future__ import annotations

import concurrent.futures
import os
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from mm32.cli import app
from mm32.verify import Report, Verdict, verify, verify_many, work
from mm32.verify.batch import ahead, handle, run
from mm32.verify.batch import worker as worker_module
from mm32.verify.batch.cards import CPU, Card, chosen
from mm32.verify.batch.jobs import Options, Pair, in_folder, make
from mm32.verify.batch.records import report_of
from mm32.verify.batch.run import Batch
from mm32.verify.batch.store import Store
from mm32.verify.batch.worker import Worker
from mm32.verify.entry import WrongArgument
from mm32.verify.judging import pieces
from mm32.verify.processes import folder as folders
from mm32.verify.processes import launch, process
from support.verify.batch import WHO, opened
from support.verify.fixtures import HEAD, REFERENCE, RIGHT, Leftovers, forward

pytestmark = pytest.mark.usefixtures("no_gpu")


def test_no_builders_are_refused(scripts: tuple[Path, Path], tmp_path: Path) -> None:
    for builders in (-2, 0, 1.5):
        with pytest.raises(WrongArgument, match="builders must be an integer, 1 at least"):
            Worker(opened(scripts, tmp_path / str(builders)), chosen(0), builders)  # type: ignore[arg-type]


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
    monkeypatch.setattr(folders.tempfile, "mkdtemp", lambda prefix: str(made.mkdir() or made))
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
