"""`mm32 verify --example` and `mm32 demo`: which script they take, what they print below the page, how they exit."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from mm32 import demo
from mm32.bench import record
from mm32.cli import app
from mm32.verify import Report, Verdict, entry

ROOT = Path(__file__).parent.parent
MAIN = ROOT / "benchmarks" / "results" / "nvidia-h200" / "main.json"


@pytest.fixture
def verified(monkeypatch):
    """The verifications that are asked for, as (reference, candidate, kernel); none is carried out, and each gets `verdict`."""

    class Asked(list):
        verdict = Verdict.INCONCLUSIVE

    asked = Asked()

    def verify(reference, candidate=None, *, kernel=None, **options):
        asked.append((reference, candidate, kernel))
        return Report(reference=str(reference), candidate=str(candidate), seed=0, verdict=asked.verdict)

    monkeypatch.setattr(entry, "verify", verify)
    monkeypatch.setattr("mm32.verify.verify", verify)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("TERM", "dumb")
    return asked


def run(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_examples_are_named_without_what_they_share():
    assert set(demo.names()) == {"tt", "nt", "tn", "nn", "tt_relu", "linear_relu", "small"}
    assert demo.folder() == ROOT / "examples"
    assert demo.example("tt_relu") == ROOT / "examples" / "matmul_tt_relu.py"
    for path in demo.names().values():
        assert "class Model(" in path.read_text()


def test_an_example_is_a_reference_for_mm32s_own_choice_a_kernel_or_a_candidate(verified, tmp_path):
    tt = demo.example("tt")
    candidate = tmp_path / "candidate.py"
    candidate.write_text("")
    assert run("verify", "--example", "tt").exit_code == 3
    run("verify", "--example", "tt", "--kernel", "simt")
    run("verify", "--example", "tt", candidate)
    assert verified == [(tt, None, "auto"), (tt, None, "simt"), (tt, candidate, None)]


def test_the_help_names_every_example() -> None:
    text = " ".join(run("verify", "--help").output.replace("│", " ").split())
    shown = text.partition("an example of mm32's: ")[2].partition(". ")[0]
    assert set(re.findall(r"[a-z_]+", shown.replace("(for a CPU)", "").replace(" or ", ", "))) == set(demo.names())


def test_an_example_that_cannot_be_taken_is_refused(verified, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("")
    for arguments, said in (
        (("zz",), "there is no example 'zz': there are linear_relu, nn, nt, small, tn, tt, tt_relu"),
        (("tt", script, script), "--example stands for REFERENCE"),
        (("tt", "--kernelbench", tmp_path), "--example stands for REFERENCE"),
        (("tt", "--worker", tmp_path), "--example stands for REFERENCE"),
    ):
        done = run("verify", "--example", *arguments)
        assert done.exit_code == 2, done.output
        assert said in done.stderr
    assert verified == []


@pytest.mark.parametrize(
    ("card", "example", "below"), [(False, "small", "What a GPU would add"), (True, "tt", "What ran")]
)
def test_demo_takes_an_example_that_suits_the_machine(verified, monkeypatch, card, example, below):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: card)
    done = run("demo")
    assert verified == [(demo.example(example), None, "auto")]
    assert done.exit_code == 0, done.output
    page, _, closing = done.stdout.partition(f"\n\n{below}\n")
    assert page.splitlines()[-1].startswith("SAME, SPEED INCONCLUSIVE")
    assert "mm32 verify reference.py candidate.py" in closing.splitlines()[-1]


@pytest.mark.parametrize("verdict", Verdict)
def test_demo_fails_where_the_proof_does(verified, verdict):
    verified.verdict = verdict
    assert run("demo").exit_code == (0 if verdict.exit_code in (0, 1, 3) else verdict.exit_code)


def test_what_the_demo_says_of_the_h200_is_in_its_record():
    assert "2048 x 8192 x 4096" in demo.WITHOUT_A_CARD
    assert "4 times as fast as torch in fp32, with a smaller error" in demo.WITHOUT_A_CARD
    rows = [row for row in record.read(MAIN)["rows"] if (row["layout"], row["bias"]) == ("tt", False)]
    assert {(row["m"], row["k"], row["n"]) for row in rows} == {(2048, 8192, 4096)}
    for row in rows:
        ours, torchs = row["results"]["mm32"], row["results"]["torch"]
        assert round(ours["speedup"]) == 4
        assert ours["error"] < torchs["error"]


@pytest.mark.slow
def test_demo_leaves_out_nothing_on_a_cpu():
    command = [sys.executable, "-c", "from mm32.cli import main; main()", "demo"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "SAME, " in done.stdout
    assert "left out:" not in done.stdout
    assert "all rejected: zeros" in done.stdout


@pytest.mark.gpu
def test_demo_on_this_card():
    command = [sys.executable, "-c", "from mm32.cli import main; main()", "demo"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "candidate  kernel auto" in done.stdout
    assert "mm, M=2048 K=8192 N=4096" in done.stdout
    assert "\nWhat ran\n" in done.stdout
    if torch.cuda.get_device_capability() == (9, 0):
        assert "SAME, FASTER" in done.stdout
