"""What a batch prints: its table, the exit code, progress, and pages that lead to one another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mm32.verify import Verdict
from mm32.verify.batch import pages, table
from mm32.verify.batch.command import Progress, duration
from mm32.verify.batch.jobs import Options, in_folder, make
from support.verify import reports as html_support
from support.verify.batch import row

pytestmark = pytest.mark.usefixtures("no_gpu")


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


def test_a_name_cannot_forge_a_line_of_the_table() -> None:
    name = "a.py\n  b.py  SAME, FASTER  9.99x\n\n1 candidates: 1 SAME, FASTER .py"
    found = table.lines([replace(row(Verdict.NOT_BUILT), name=name)])
    assert not [line for line in found if line.lstrip().startswith(("b.py", "1 candidates: 1 SAME, FASTER"))]
