"""What a candidate says cannot leave its line, move the cursor, or pass for a line of the tool's."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from mm32.verify import Report, Verdict, verify
from mm32.verify.exchange import wire
from mm32.verify.judging.bounds import Truth
from mm32.verify.judging.judge import judge
from mm32.verify.processes.channel import Channel, Failure
from mm32.verify.text import LOG_LINE, fold, log, one_line
from support.verify.fixtures import HEAD, REFERENCE, RIGHT, Run, forward
from support.verify.pages import page

FORGED = "SAME, FASTER 9.99x"
# What begins a new line, moves the cursor, reorders or hides text, or means something to the printer.
HOSTILE = {
    "line feed": f"a\n{FORGED}",
    "carriage return": f"a\r{FORGED}",
    "line separator": f"a\u2028{FORGED}",
    "paragraph separator": f"a\u2029{FORGED}",
    "next line": f"a\x85{FORGED}",
    "vertical tab, form feed": f"a\x0b\x0c{FORGED}",
    "clears the screen": f"\x1b[2J\x1b[H{FORGED}",
    "C1 escape": f"\x9b2J{FORGED}",
    "title": f"\x1b]0;{FORGED}\x07",
    "backspaces": "a" + "\b" * 40 + FORGED,
    "right to left": f"\u202e{FORGED[::-1]}\u202c",
    "isolate": f"\u2066{FORGED}\u2069",
    "invisible": "SAME\u200b, FASTER\u2060\ufeff",
    "tag": "\U000e0041",
    "half a character": "\ud800",
    "NUL": "a\0b",
    "markup": f"[bold green]{FORGED}[/bold green][/][link=x]",
    "emoji code": ":warning: :thumbs_up:",
    "long": "x" * 20_000,
    "wide": "\u5b57" * 500 + FORGED,
}


def answer(header: dict[str, Any]) -> Any:
    """Return what the tool's end of a channel makes of a worker's answer: a Reply or a Failure."""
    ours, theirs = socket.socketpair()
    end = wire.Connection(theirs)

    def work() -> None:
        request, _ = end.receive()
        end.send({"nonce": request["nonce"], "value": {"value": None}, **header})

    thread = threading.Thread(target=work)
    thread.start()
    try:
        return Channel(ours, lambda: None).ask("forward", None, {}, None)
    except Failure as failure:
        return failure
    finally:
        ours.close()  # ends the other end's wait
        thread.join()
        theirs.close()


def printable(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


def texts(value: Any) -> list[str]:
    """Return every text in a tree of JSON, keys too."""
    if isinstance(value, dict):
        return [text for pair in value.items() for item in pair for text in texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("name", HOSTILE)
def test_one_line_is_one_printable_line(name: str) -> None:
    said = one_line(HOSTILE[name], 300)
    assert said.isprintable()
    assert len(said.splitlines()) == 1
    assert len(said) < 3100
    said.encode()


def test_what_is_harmless_stays() -> None:
    for text in ("main.cpp:12: error: ‘tmp’ was not declared", "größer ‖C‖ ≤ 2·u", "[1, 2]", "\\n"):
        assert one_line(text) == text
    assert one_line("a\nb\x1b[2J\u2028") == r"a\nb\x1b[2J\u2028"
    assert one_line("x" * 12, 10) == "x" * 10 + "… (12 characters)"


def test_a_log_keeps_its_lines_and_only_those() -> None:
    assert log("  a\r\n\tb \x1b[2J\u2028c\n") == "  a\n    b \\x1b[2J\\u2028c\n"
    assert max(map(len, log("x" * 10_000).split("\n"))) < LOG_LINE + 30
    assert len(log("x\n" * 100_000).split("\n")) < 5000
    assert printable(log("\n".join(HOSTILE.values())))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_folded_line_fits_and_goes_on_behind_the_bar(name: str) -> None:
    rows = fold(one_line(HOSTILE[name], None), 40, "  | ")
    assert all(sum(1 if c.isascii() else 2 for c in row) <= 40 for row in rows)
    assert all(row.startswith("  | ") for row in rows[1:])
    assert rows[0] + "".join(row[4:] for row in rows[1:]) == one_line(HOSTILE[name], None)


@pytest.mark.parametrize("name", HOSTILE)
def test_every_text_of_an_answer_is_safe(name: str) -> None:
    reply = answer({"why_not": HOSTILE[name], "devices": [HOSTILE[name]], "more": {HOSTILE[name]: 1}})
    assert all(text.isprintable() for text in texts(reply.header))
    fields = ("type", "message", "hint", "script", "source", "context", "traceback")
    failure = answer({"error": {**dict.fromkeys(fields, HOSTILE[name]), HOSTILE[name]: HOSTILE[name], "line": 3}})
    assert failure.kind == "raised"
    assert failure.message.isprintable()
    assert set(failure.details) == {*fields, "line", "built"}
    assert all(printable(text) for text in texts(failure.details))
    assert all(failure.details[field].isprintable() for field in fields[:5])


def test_an_error_of_other_types_is_refused() -> None:
    for error in ("text", {"message": 3}, {"message": ["a"]}, {"context": {}}):
        with pytest.raises(wire.ProtocolError, match="malformed error"):
            answer({"error": error})
    deep: Any = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(wire.ProtocolError, match="nested too deep"):
        answer({"devices": deep})
    assert answer({"error": {"line": "3", "built": "yes"}}).details["line"] is None
    assert answer({"error": {"line": True, "built": 2}}).details["built"] == 0


@pytest.mark.parametrize("name", HOSTILE)
def test_texts_inside_outputs_are_one_line_where_they_are_shown(name: str) -> None:
    for result in (
        judge(HOSTILE[name], [Truth("output", "x")]),
        judge({HOSTILE[name]: 1}, [Truth("output", "x")]),
        judge([HOSTILE[name], 1], [Truth("output", "x")]),
    ):
        assert not result.same
        assert result.reason.isprintable()
        assert len(result.reason) < 1000
    assert judge(HOSTILE[name], [Truth("output", HOSTILE[name])]).same


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_the_page_ends_in_the_verdict_and_holds_no_other(name: str, terminal: bool) -> None:
    # As if something had got past the channel: the page does not rely on the channel.
    said = HOSTILE[name]
    report = Report(f"/r{said}.py", f"/c{said}.py", 1, Verdict.CRASHED, f"the candidate failed: {said}")
    report.notes = [said]
    report.probes = [{"name": said, "asks": said, "status": "different", "reason": said}]
    report.error = {
        **dict.fromkeys(("type", "message", "hint", "script", "source", "traceback"), said),
        "context": f"{said}\n{FORGED}\n",
        "line": 1,
    }
    report.printed = f"{said}\n{FORGED}\n\n{FORGED}"
    text = page(report, terminal)
    rows = text.rstrip("\n").split("\n")
    assert printable(text)
    assert not any(row.startswith("SAME") for row in rows)
    verdict = max(i for i, row in enumerate(rows) if row.startswith("CRASHED: the candidate failed: "))
    assert all(row.startswith("  | ") for row in rows[verdict + 1 :])
    if terminal:
        assert all(sum(1 if c.isascii() else 2 for c in row) <= 80 for row in rows)
    else:
        assert rows[-1].startswith("CRASHED: ")
    assert "SAME" not in [row.strip().split(",")[0] for row in rows]


def test_markup_and_emoji_codes_are_shown_as_they_are() -> None:
    report = Report("r", "c", 1, Verdict.CRASHED, "[bold]x[/bold] [/] :warning:")
    assert page(report).rstrip().endswith("CRASHED: [bold]x[/bold] [/] :warning:")


# ---------------------------------------------------------------------------------------------------------- whole runs

CLASS = f"type('x' * 300 + '\\n{FORGED}\\u2028{FORGED}\\x1b[2J[bold]', (Exception,), {{}})"
CANDIDATES: dict[str, Callable[[], str]] = {
    "while it is loaded": lambda: f"raise {CLASS}('\\n{FORGED}')\n",
    "while it runs": lambda: forward(f"raise {CLASS}('\\n{FORGED}')", f"print('{FORGED}\\r\\x1b[2J\\n{FORGED}')"),
    "in a build's log": lambda: (
        HEAD
        + "raise RuntimeError('Error building extension \\'x\\': [1/1]\\n/x\\x1b[2J/main.cpp:1:2: error: \\u2028"
        + f"{FORGED}\\n   1 | \\x9b {FORGED}\\n     |\\r{FORGED}\\n{FORGED}\\n')\n"
    ),
    "as its exit code": lambda: f"raise SystemExit('\\n{FORGED}')\n",
}


@pytest.mark.parametrize("name", CANDIDATES)
def test_a_candidate_forges_no_verdict(run: Run, name: str) -> None:
    report = run(CANDIDATES[name](), trials=1)
    assert not report.verdict.same
    for terminal in (False, True):
        text = page(report, terminal)
        rows = text.rstrip("\n").split("\n")
        assert printable(text)
        assert not any(row.lstrip().startswith("SAME") for row in rows)
        assert any(row.startswith(report.verdict.value) for row in rows)
    assert rows[-1].startswith((report.verdict.value, "  | "))
    record = json.loads(report.json())
    logs = {record["printed"], record["error"].get("context"), record["error"].get("traceback")}
    for said in texts(record):
        assert printable(said)
        assert said in logs or "\n" not in said


@pytest.fixture(scope="module")
def full_report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Return a report with every section: that of a right candidate, to which an error and printed text are added."""
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "candidate.py").write_text(RIGHT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        report = verify(folder / "reference.py", folder / "candidate.py", trials=1, seed=1)
    assert report.probes
    assert report.self_test
    assert report.timing
    assert report.isolation is not None
    report.error = {
        **dict.fromkeys(("type", "message", "hint", "script", "source", "context", "traceback"), "x"),
        "line": 1,
    }
    report.notes, report.isolation, report.printed = ["x"], ["x", "x"], "x"
    return report


def poisoned(value: Any, said: str) -> Any:
    """Return the same tree with `said` for every text in it, except keys, which are the tool's own, and the verdict."""
    if isinstance(value, Verdict) or value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return said
    if isinstance(value, dict):
        return {key: poisoned(item, said) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [poisoned(item, said) for item in value]
    return value


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_of_a_report_can_pass_for_the_tools_own(full_report: Report, name: str, terminal: bool) -> None:
    for verdict in (Verdict.CRASHED, Verdict.DIFFERENT):
        report = Report(**{**poisoned(vars(full_report), HOSTILE[name]), "seed": 1, "verdict": verdict})
        text = page(report, terminal)
        rows = text.rstrip("\n").split("\n")
        assert printable(text)
        assert not any(row.lstrip().startswith("SAME, F") for row in rows)
        last = max(i for i, row in enumerate(rows) if row.startswith(f"{verdict.value}: "))
        assert all(row.startswith("  | ") for row in rows[last + 1 :])
        if not terminal:
            assert last == len(rows) - 1
