"""Forty-odd generated candidates for one small reference: none is lost and no verdict is wrong, whatever happens to the tool.

In tests/, `python -m verify.test_batch_many FOLDER` runs them and prints how long they took: the figures of docs/batches.md.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from mm32.verify import Verdict, verify
from support.verify.fixtures import HEAD
from support.verify.many import write

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-c", "from mm32.cli import main; main()", "verify"]
OPTIONS = ["--trials", "2", "--timeout", "10"]
KILLS = 5


def environment() -> dict[str, str]:
    return {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", "CUDA_VISIBLE_DEVICES": ""}


def start(reference: Path, candidates: Path, *more: str | Path) -> subprocess.Popen[str]:
    command = [*COMMAND, str(reference), str(candidates), *OPTIONS, *map(str, more)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment(), start_new_session=True)


def records(candidates: Path) -> dict[str, dict]:
    lines = (candidates.with_name("candidates.mm32-verify") / "results.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines[1:]]
    assert len({record["name"] for record in found}) == len(found)
    return {record["name"]: record["report"] for record in found}


def verdicts(candidates: Path) -> dict[str, Verdict]:
    return {name: Verdict[report["verdict"]] for name, report in records(candidates).items()}


def running(process: psutil.Process) -> list[psutil.Process]:
    return [one for one in process.children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE]


def gone(processes: list[psutil.Process], seconds: float = 30) -> bool:
    _, alive = psutil.wait_procs(processes, seconds)
    return not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.timeout(1500)
def test_none_is_lost_and_none_is_wrong_and_each_is_as_it_is_alone(tmp_path: Path) -> None:
    reference, candidates, expected = write(tmp_path)
    done = start(reference, candidates, "--exit-code", "tool")
    page, said = done.communicate(timeout=900)
    assert done.returncode == 0, said
    found = verdicts(candidates)
    assert set(found) == set(expected)
    wrong = {name: verdict for name, verdict in found.items() if verdict not in expected[name]}
    assert wrong == {}
    assert f"{len(expected)} candidates: " in page
    assert f"({len(expected)} of {len(expected)}, " in said
    for name, verdict in found.items():
        if name[:2] == "h_":
            continue  # one that hangs takes three times ten seconds
        alone = verify(reference, candidates / name, trials=2, timeout=10).verdict
        assert (alone.same, alone if not alone.same else None) == (verdict.same, verdict if not verdict.same else None)


@pytest.mark.timeout(1500)
def test_a_tool_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    """After SIGKILL at five random moments, it still finishes, with the table that it would have had."""
    reference, candidates, expected = write(tmp_path)
    store = candidates.with_name("candidates.mm32-verify")
    chance = random.Random(time.time_ns())
    before = 0
    for _ in range(KILLS):
        tool = start(reference, candidates)
        process = psutil.Process(tool.pid)
        time.sleep(chance.uniform(8, 45))
        below = running(process) if tool.poll() is None else []
        tool.kill()
        tool.communicate()
        assert gone(below)
        done = len(list((store / "done").iterdir())) if store.exists() else 0
        assert done >= before
        before = done
    last = start(reference, candidates, "--exit-code", "none")
    _, said = last.communicate(timeout=900)
    assert last.returncode == 0, said
    assert before > 0
    assert f"{before} of them were done before" in said
    found = verdicts(candidates)
    assert set(found) == set(expected)
    assert {name: verdict for name, verdict in found.items() if verdict not in expected[name]} == {}
    assert not [r for r in records(candidates).values() if r["verdict"] == "TOOL_FAILED"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_everything_and_loses_nothing(tmp_path: Path, number: signal.Signals) -> None:
    reference, candidates, _ = write(tmp_path)
    for path in candidates.glob("[shbc]_*.py"):
        path.unlink()
    (candidates / "a_hang.py").write_text(HEAD + "while True: pass\n")
    store = candidates.with_name("candidates.mm32-verify")
    tool = start(reference, candidates)
    process = psutil.Process(tool.pid)
    end = time.monotonic() + 120
    while time.monotonic() < end and len(list((store / "done").glob("*"))) < 2:
        time.sleep(0.2)
    below = running(process)
    assert below
    tool.send_signal(number)
    _, said = tool.communicate(timeout=60)
    assert tool.returncode == 130, said
    assert "the same command goes on" in said
    assert "mm32: interrupted" in said
    assert gone(below)
    kept = [json.loads(line) for path in (store / "records").iterdir() for line in path.read_text().splitlines()]
    assert sum(record["kind"] == "record" for record in kept) == len(list((store / "done").iterdir())) >= 2
    assert not list((store / "leases").glob("*.begun"))
    assert not list((store / "workers").iterdir())


def main(folder: str) -> None:
    """Run all candidates, and print how long they took."""
    reference, candidates, expected = write(Path(folder))
    begin = time.monotonic()
    tool = start(reference, candidates)
    page, _ = tool.communicate()
    seconds = time.monotonic() - begin
    found = verdicts(candidates)
    wrong = {name: verdict.value for name, verdict in found.items() if verdict not in expected[name]}
    print(page)
    print(
        f"{len(found)} of {len(expected)} in {seconds:.0f} s, {len(found) / seconds * 60:.1f} a minute; wrong: {wrong}"
    )
    print(f"exit code {tool.returncode}; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main(sys.argv[1])
