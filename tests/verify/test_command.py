"""`mm32 verify` on the command line: usage, exit codes, the page, the JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from mm32 import cli
from mm32.install import pip_install
from mm32.verify import entry, html, page, verify
from mm32.verify.verdict import EXIT_MEANINGS
from support.verify.fixtures import REFERENCE, RIGHT, forward

COMMAND = [sys.executable, "-c", "from mm32.cli import main; main()"]
Write = Callable[[str, str], Path]


def mm32(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, env=environment, timeout=120, check=False
    )


@pytest.fixture
def scripts(write: Write) -> tuple[Path, Path]:
    return write("reference.py", REFERENCE), write("candidate.py", RIGHT)


def test_a_page_with_the_verdict_last_and_progress_on_stderr(scripts: tuple[Path, Path], tmp_path: Path) -> None:
    files = ("--json", tmp_path / "report.json", "--html", tmp_path / "report.html")
    done = mm32("verify", *scripts, "--trials", "1", "--seed", "5", *files)
    record = json.loads((tmp_path / "report.json").read_text())
    assert done.returncode == record["exit_code"]
    assert done.returncode in (0, 1, 3, 4), done.stdout
    assert done.stdout.strip().splitlines()[-1].startswith("SAME, ")
    for part in (
        "trial 1, seed 5",
        "Probes",
        "Could this check have failed?",
        "operands rounded to TF32",
        "speedup",
        "torch ",
    ):
        assert part in done.stdout
    assert "mm32: comparing, trial 1 of 1" in done.stderr
    assert "\x1b" not in done.stdout
    assert (record["schema"], record["same"], record["seed"]) == ("mm32.verify/4", True, 5)
    (drawn,) = record["picture"]["outputs"]
    assert (drawn["path"], drawn["shape"], drawn["wrong"], drawn["cells"]) == ("output", [64, 96], 0, [64, 96])
    sources = [script.read_text() for script in reversed(scripts)]
    assert (tmp_path / "report.html").read_text() == html.page(record, *sources)


def test_quiet_shows_one_line_and_no_progress(write: Write) -> None:
    wrong = write("c.py", forward("return torch.zeros(64, 96)"))
    done = mm32("verify", write("r.py", REFERENCE), wrong, "--trials", "1", "--quiet")
    assert done.returncode == 5
    assert done.stderr == ""
    (line,) = done.stdout.splitlines()
    assert line.startswith("DIFFERENT: output: ")


def test_json_on_standard_output_stands_alone(write: Write) -> None:
    done = mm32("verify", write("r.py", REFERENCE), write("c.py", forward("return torch.zeros(64, 96)")), "--json", "-")
    record = json.loads(done.stdout)
    assert done.returncode == record["exit_code"] == 5
    assert record["verdict"] == "DIFFERENT"
    assert "DIFFERENT: output: normwise error 1 is above the bound" in done.stderr


@pytest.mark.parametrize("closed", ["output", "errors"])
def test_a_closed_pipe_changes_no_exit_code(closed: str, write: Write) -> None:
    """Nobody reads the page, as behind `| true`, or the progress; what goes elsewhere is whole."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*COMMAND, "verify", write("r.py", REFERENCE), write("w.py", "class ModelNew("), "--json", "-"],
            stdout=writing if closed == "output" else subprocess.PIPE,
            stderr=writing if closed == "errors" else subprocess.PIPE,
            timeout=120,
            check=False,
        )
    finally:
        os.close(writing)
    assert done.returncode == 6
    if closed == "errors":
        assert json.loads(done.stdout)["verdict"] == "NOT_BUILT"
    else:
        assert b"COULD NOT BUILD" in done.stderr


def test_wrong_usage_is_exit_code_2(scripts: tuple[Path, Path], tmp_path: Path) -> None:
    reference, candidate = scripts
    for arguments, says in (
        ([reference], "give either a candidate script or the name of a kernel"),
        ([reference, candidate, "--kernel", "naive"], "give either a candidate script or the name of a kernel"),
        ([reference, tmp_path / "none.py"], "does not exist"),
        ([reference, candidate, "--trials", "0"], "trials"),
        ([reference, "--kernel", "naive"], "the kernel 'naive' runs on a GPU, and torch finds none here"),
        ([reference, "--kernel", "magic"], "unknown kernel 'magic': mm32 has 'auto', 'naive'"),
        ([reference, candidate, "--seed", str(2**62)], f"seed must be an integer from 0 to 2^62 - 1, got {2**62}"),
        ([reference, candidate, "--json", tmp_path / "none" / "x.json"], "there is no folder"),
        ([reference, candidate, "--json", tmp_path], f"{tmp_path} is a folder"),
        ([reference, candidate, "--exit-code", "tool"], "--exit-code is for many candidates"),
        ([reference, candidate, "--html", tmp_path / "none" / "x.html"], "there is no folder"),
    ):
        done = CliRunner().invoke(cli.app, ["verify", *map(str, arguments)])
        assert done.exit_code == 2, arguments
        assert says in " ".join(done.stderr.replace("│", " ").split())
    done = mm32("verify", reference)  # the exit code of a process
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("beside", "options", "said"),
    [
        ("worker", ["--json", "out.json"], "--json has no effect beside --worker"),
        ("worker", ["--trials", "7", "--quiet"], "--trials has no effect beside --worker"),
        ("worker", ["--submit"], "--submit has no effect beside --worker"),
        ("worker", ["--kernelbench", "."], "--worker takes its jobs from the store"),
        ("folder", ["--submit", "--html", "out.html"], "--html has no effect beside --submit"),
        ("folder", ["--submit", "--gpus", "1"], "--gpus has no effect beside --submit"),
        ("folder", ["--verbose"], "--verbose is for one candidate"),
        ("folder", ["--kernel", "simt"], "--kernel is for one reference alone"),
    ],
)
def test_an_option_without_effect_is_refused(
    beside: str,
    options: list[str],
    said: str,
    scripts: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    of = ["--worker", str(tmp_path)] if beside == "worker" else [str(scripts[0]), str(tmp_path)]
    done = CliRunner().invoke(cli.app, ["verify", *of, *options])
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("out.")]


def test_wrong_arguments_are_value_errors(scripts: tuple[Path, Path]) -> None:
    reference, candidate = scripts
    for arguments, says in (
        ({"candidate": candidate, "trials": "3"}, "trials must be an integer, 1 at least, got '3'"),
        ({"candidate": candidate, "timeout": "a"}, "timeout must be a positive number, got 'a'"),
        ({"kernel": "simt"}, "the kernel 'simt' runs on a GPU"),
        ({"kernel": "zz"}, "unknown kernel 'zz': mm32 has 'auto', 'naive'"),
        ({}, "give either a candidate script or the name of a kernel"),
        ({"candidate": candidate, "kernel": "naive"}, "give either a candidate script"),
        ({"candidate": candidate, "seed": -1}, "seed must be an integer from 0 to 2^62 - 1, got -1"),
        ({"candidate": candidate, "seed": 2**62}, f"seed must be an integer from 0 to 2^62 - 1, got {2**62}"),
    ):
        with pytest.raises(ValueError) as refused:
            verify(reference, **arguments)  # type: ignore[arg-type]
        assert says in str(refused.value)


class _Verified:
    exit_code = 0

    def json(self) -> str:
        return "{}"

    def as_dict(self) -> dict[str, object]:
        return {}


def test_an_error_of_the_tool_itself_is_exit_code_70(
    scripts: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not 1, which would mean "same, slower", nor 2 for a ValueError that is not about an argument."""

    def fail(*_: object, **__: object) -> None:
        raise ValueError("inside")

    def run(file: str, option: str = "--json") -> int:
        done = CliRunner().invoke(cli.app, ["verify", *map(str, scripts), option, file])
        if file == "/dev/full":
            assert done.stderr == "mm32: /dev/full could not be written: No space left on device\n"
        return done.exit_code

    monkeypatch.setattr(entry.Session, "run", lambda self: _Verified())
    monkeypatch.setattr(page.Page, "print", lambda self: None)
    assert run(str(tmp_path / "report.json")) == 0
    assert (tmp_path / "report.json").read_text() == "{}\n"
    assert run("/dev/full") == 70
    monkeypatch.setattr(html, "page", lambda *_: "<!DOCTYPE html>")
    assert run(str(tmp_path / "report.html"), "--html") == 0
    assert (tmp_path / "report.html").read_text() == "<!DOCTYPE html>"
    assert run("/dev/full", "--html") == 70
    monkeypatch.setattr(page.Page, "print", fail)
    assert run("-") == 70
    monkeypatch.setattr(entry.Session, "run", fail)
    assert run("-") == 70


@pytest.mark.parametrize("missing", ["psutil", "torch"])
def test_a_package_that_is_missing_is_exit_code_70(missing: str, scripts: tuple[Path, Path]) -> None:
    """It is not 1, which would mean that the candidate is the same and slower."""
    code = (
        f"import sys; sys.modules[{missing!r}] = None; sys.argv = ['mm32', 'verify', {str(scripts[0])!r}, {str(scripts[1])!r}]; "
        "from mm32.cli import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 70, ended.stderr
    assert missing in ended.stderr


def test_help_tells_every_exit_code() -> None:
    done = mm32("verify", "--help")
    assert done.returncode == 0
    text = " ".join(done.stdout.replace("│", " ").split())
    for code, meaning in EXIT_MEANINGS.items():
        assert f"{code} {meaning}" in text
        assert meaning in cli.verify.EXIT_CODES


def test_alone_it_shows_help() -> None:
    done = mm32()
    assert "verify" in done.stdout + done.stderr


def test_without_typer_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['typer'] = None\nfrom mm32.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == f"mm32's command line needs: {pip_install('cli')}"


def sleepers() -> list[int]:
    """Return the ids of the processes that the candidate of the next test starts."""
    return [one.pid for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == ["sleep", "998.7"]]


def test_an_interrupt_cleans_up(write: Write) -> None:
    source = "import subprocess, time\nsubprocess.Popen(['sleep', '998.7'])\ntime.sleep(999)\n"
    arguments = [*COMMAND, "verify", str(write("r.py", REFERENCE)), str(write("c.py", source))]
    process = subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # else a shell's background job ignores it
    )
    give_up = time.monotonic() + 60
    while not sleepers() and time.monotonic() < give_up:
        time.sleep(0.1)
    assert sleepers()
    below = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted" in errors
    assert not sleepers()
    _, alive = psutil.wait_procs(below, timeout=5)
    assert not alive
