"""A record as a table, as CSV and as Markdown: clock, power and energy beside each time, marks, and empty cells."""

from __future__ import annotations

import csv
import io

import pytest
from typer.testing import CliRunner

from mm32.bench import formats, record, summary
from mm32.bench.measure import Case
from mm32.cli import app
from support.bench import row, text


def run(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def seen() -> dict:
    """A record with readings, one of them from a card at its power cap, and an implementation that could not run."""
    made = row(Case(1000, 2000, 3000, "tt"), torch=4e-3, torch_tf32=1e-3, mm32=2e-3)
    made["unavailable"] = {"tensorcore": "no [wgmma] | here, sorry"}
    for name, clock, watts, why, used in (
        ("torch", 1980.0, 400.0, [], 1.5),
        ("torch-tf32", 1700.25, 699.6, ["heat", "power cap"], None),
        ("mm32", 1755.0, 680.0, [], 0.8125),
    ):
        made["results"][name] |= {"clock_mhz": clock, "power_w": watts, "throttled": why, "joules": used}
    return {
        "schema": 1, "name": "made up", "made": "2026-01-02", "kernels": {}, "method": "", "sensor": "NVML",
        "environment": {"card": "NVIDIA X", "driver": "580", "torch": "2.11.0", "mm32": "0.1.0"}, "rows": [made],
    }  # fmt: skip


def test_the_table_has_clock_power_energy_and_marks(seen):
    page = text(summary.table(seen))
    lines = [line.split() for line in page.splitlines()]
    assert lines[0][-3:] == ["MHz", "W", "J"]
    assert ["torch", "4", "ms", "3", "1.0e-06", "16.8", "1980", "400", "1.5"] in lines
    assert [line[-2:] for line in lines if line[:1] == ["torch-tf32"]] == [["1700↓", "700"]]
    said = "↓: the card held its clocks down (heat, power cap) while 1 of 3 were measured."
    assert said in " ".join(page.split())
    del seen["rows"][0]["results"]["torch-tf32"]
    assert "↓" not in text(summary.table(seen))


def test_without_readings_the_table_is_as_it_was_and_says_why(seen):
    for result in seen["rows"][0]["results"].values():
        for field in ("clock_mhz", "power_w", "throttled", "joules"):
            del result[field]
    seen["sensor"] = "none: there is no nvidia-smi"
    page = text(summary.table(seen))
    assert "MHz" not in page
    assert "Clock and power were not read: there is no nvidia-smi" in page
    del seen["sensor"]
    assert "not read" not in text(summary.table(seen))


def test_csv_has_every_field_of_the_record(seen):
    rows = list(csv.DictReader(io.StringIO(formats.as_csv(seen))))
    assert [line["implementation"] for line in rows] == ["torch", "torch-tf32", "mm32", "tensorcore"]
    results = seen["rows"][0]["results"]
    for line in rows[:3]:
        result = results[line["implementation"]]
        for field in (
            "seconds",
            "low",
            "high",
            "speedup",
            "speedup_low",
            "speedup_high",
            "error",
            "gauge",
            "clock_mhz",
            "power_w",
        ):
            assert float(line[field]) == result[field]
        assert line["throttled"] == ";".join(result["throttled"])
        assert line["joules"] == ("" if result["joules"] is None else repr(result["joules"]))
        assert (line["m"], line["k"], line["n"], line["layout"], line["bias"]) == (
            "1000",
            "3000",
            "2000",
            "tt",
            "False",
        )
    assert rows[3]["unavailable"] == "no [wgmma] | here, sorry"
    assert rows[3]["seconds"] == ""


def test_markdown_is_one_table_with_the_error_beside_each_time(seen):
    made = formats.as_markdown(seen)
    table = [line for line in made.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.replace("\\|", "/").strip("|").split("|")] for line in table]
    assert {len(line) for line in cells} == {10}
    assert cells[0][2:] == [
        "time",
        "TFLOP/s",
        "× torch (95 %)",
        "error",
        "error/u",
        "SM clock",
        "power",
        "energy a call",
    ]
    case = "1000x3000x2000 tt randn"
    assert cells[2] == [case, "torch", "4 ms", "3", "", "1.0e-06", "16.8", "1980 MHz", "400 W", "1.5 J"]
    assert cells[3][7:] == ["1700 MHz ↓ heat, power cap", "700 W", ""]
    assert cells[4][1:5] == ["mm32 (mm32)", "2 ms", "6", "2.00 (2.00–2.00)"]
    assert cells[5][:2] == [case, "tensorcore: not available: no [wgmma] / here, sorry"]
    assert "NVIDIA X, driver 580" in made
    for result in seen["rows"][0]["results"].values():
        for field in ("clock_mhz", "power_w", "throttled", "joules"):
            del result[field]
    assert "clock" not in formats.as_markdown(seen)


@pytest.mark.parametrize("old", [True, False])
def test_a_record_of_other_kernels_is_said_to_be_one(seen, tmp_path, old):
    seen["kernels"] = {name: record.kernel_hash(name) for name in ("simt", "tensorcore")} | (
        {"simt": "0"} if old else {}
    )
    saved = tmp_path / "saved.json"
    record.write(saved, seen)
    done = run("bench", "--from", saved, "--markdown", "-")
    assert done.exit_code == 0, done.output
    said = "Measured with other versions of simt than this mm32 has: it does not say how fast those are. Run mm32 bench again."
    for page in (done.stdout, done.stderr):
        assert (said in " ".join(page.split())) == old
    del seen["kernels"]
    assert "other versions" not in text(summary.table(seen))


def test_the_command_writes_csv_and_markdown_of_a_saved_record(seen, tmp_path):
    saved = tmp_path / "saved.json"
    record.write(saved, seen)
    done = run("bench", "--from", saved, "--csv", tmp_path / "t.csv", "--markdown", "-")
    assert done.exit_code == 0, done.output
    assert done.stdout == formats.as_markdown(seen)
    assert (tmp_path / "t.csv").read_text() == formats.as_csv(seen)
    assert "1700↓" in done.stderr
    refused = run("bench", "--from", saved, "--csv", "-", "--json", "-")
    assert refused.exit_code == 2
    assert "one thing can go to standard output, not --json and --csv" in refused.stderr
    for option in ("--csv", "--markdown"):
        refused = run("bench", "--from", saved, option, "/nowhere/at/all")
        assert refused.exit_code == 2
        assert "there is no folder /nowhere/at" in refused.stderr
    assert "--energy do not go with it" in run("bench", "--from", saved, "--energy").stderr
