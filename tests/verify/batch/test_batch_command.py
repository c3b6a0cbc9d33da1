"""Many candidates on the command line, by commands in their own processes: a KernelBench run, and workers over a store, one of
which is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from support.verify.fixtures import HEAD, REFERENCE, RIGHT, forward

COMMAND = [sys.executable, "-c", "from mm32.cli import main; main()", "verify"]
WRONG = forward("return torch.zeros(64, 96)")
HANGS = HEAD + "import time\ntime.sleep(600)\n"


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", "CUDA_VISIBLE_DEVICES": ""}
    command = [*COMMAND, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True)


def ended(process: subprocess.Popen[str], seconds: float = 200) -> tuple[str, str]:
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise


def test_a_quiet_run_shows_the_summary_alone(tmp_path: Path) -> None:
    folder = tmp_path / "candidates"
    folder.mkdir()
    (tmp_path / "reference.py").write_text(REFERENCE)
    for name in ("a.py", "b.py"):
        (folder / name).write_text("def (")
    process = start(tmp_path / "reference.py", folder, "--quiet")
    page, progress = ended(process)
    assert process.returncode == 6, (page, progress)
    assert progress == ""
    assert "COULD NOT BUILD" in page
    assert "a.py" not in page


def test_a_run_of_kernelbench(tmp_path: Path) -> None:
    """The command reads KernelBench's layout and writes its form of results; the worst candidate decides the exit code."""
    problems, made = tmp_path / "KernelBench" / "level1", tmp_path / "runs" / "mine"
    problems.mkdir(parents=True)
    made.mkdir(parents=True)
    for name in ("1_Product.py", "2_Other.py", "10_More.py"):
        (problems / name).write_text(REFERENCE)
    for problem, sample, source in ((1, 0, RIGHT), (1, 1, WRONG), (10, 0, "def (")):
        (made / f"level_1_problem_{problem}_sample_{sample}_kernel.py").write_text(source)
    files = ("--eval-results", tmp_path / "eval.json", "--json", tmp_path / "all.json", "--html", tmp_path / "all.html")
    process = start("--kernelbench", made, "--trials", "1", *files)
    page, progress = ended(process)
    assert process.returncode == 6, (page, progress)  # one candidate could not be built
    assert re.search(r"^of 3: fast_0 0\.333, .* \(eager torch is what was to be beaten\)$", page, re.M)
    assert "as KernelBench counts, sample 0 of 3 problems:" in page
    assert "level_1_problem_10_sample_0_kernel.py: COULD NOT BUILD (" in progress
    results = json.loads((tmp_path / "eval.json").read_text())
    said = {
        (problem, r["sample_id"]): (r["compiled"], r["correctness"]) for problem in results for r in results[problem]
    }
    assert said == {("1", 0): (True, True), ("1", 1): (True, False), ("10", 0): (False, False)}
    assert results["1"][0]["runtime"] > 0 > results["1"][1]["runtime"]
    assert "level_1_problem_1_sample_1_kernel.py" in (tmp_path / "all.html").read_text().replace("<wbr>", "")
    kept = [json.loads(line) for line in (tmp_path / "all.json").read_text().splitlines()]
    assert [line["report"]["verdict"] for line in kept[1:]].count("DIFFERENT") == 1
    assert len(kept) == 4
    # What is done is not done again.
    again = start("--kernelbench", made, "--trials", "1")
    page, progress = ended(again)
    assert again.returncode == 6
    assert "3 of them were done before" in progress
    assert "(1 of" not in progress


@pytest.mark.slow
def test_a_worker_is_killed_and_another_goes_on(tmp_path: Path) -> None:
    """Jobs are put into a store, and a worker is killed in the midst of one. The next one finishes all jobs, and loses none."""
    reference, candidates, store = tmp_path / "reference.py", tmp_path / "candidates", tmp_path / "store"
    candidates.mkdir()
    reference.write_text(REFERENCE)
    for name, source in (("a_hangs.py", HANGS), ("b_right.py", RIGHT), ("c_wrong.py", WRONG)):
        (candidates / name).write_text(source)
    options = ("--store", store, "--trials", "1", "--timeout", "10")
    submitting = start(reference, candidates, *options, "--submit")
    page, progress = ended(submitting)
    assert submitting.returncode == 0, (page, progress)

    first = start("--worker", store)
    until = time.monotonic() + 60
    while not any("a_hangs" in " ".join(p.cmdline()) or p.children() for p in psutil.Process(first.pid).children()):
        assert time.monotonic() < until, "the first worker began nothing"
        assert first.poll() is None
        time.sleep(0.2)
    time.sleep(2)
    started = psutil.Process(first.pid).children(recursive=True)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    _, alive = psutil.wait_procs(started, 30)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]

    second = start("--worker", store)
    page, progress = ended(second)
    assert second.returncode == 0, (page, progress)
    table = start(reference, candidates, *options)
    page, progress = ended(table)
    lines = {line.split()[0]: line for line in page.splitlines() if line.strip().startswith(("a_", "b_", "c_"))}
    assert "TIMED OUT" in lines["a_hangs.py"]
    assert "SAME" in lines["b_right.py"]
    assert "DIFFERENT" in lines["c_wrong.py"]
    assert "3 candidates:" in page
