"""Statements of the reference that no compared call has run."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

from mm32.verify.reference import lines as watched
from mm32.verify.reference.lines import Lines

SCRIPT = '''
def helper(x):
    """A helper."""
    if x > 10:
        return 0
    return x


def never(x):
    return x


def forward(x, more=None):
    if x < 0:
        raise ValueError("below")
    if x == 5:
        print("five")
        raise ValueError("five")
    total = 0
    for i in range(x):
        if i == 3:
            continue
        total += helper(
            i
        )
        if i > 100:
            total = never(total)
            total -= 1
        elif i > 200:
            total += 1
    if more is not None:
        total *= more
    else:
        total += 1
    try:
        total //= x
    except ZeroDivisionError:
        total = -1
    while total > 1000:
        total -= 1000
    return total
'''
PATH = "/nowhere/script.py"


@pytest.fixture
def run() -> tuple[Lines, Callable[..., Any]]:
    module = types.ModuleType("script")
    exec(compile(SCRIPT, PATH, "exec"), module.__dict__)
    return Lines(SCRIPT, PATH), module.forward


def number(text: str) -> int:
    """Return the number of the first line of the script that begins with this text."""
    return next(i for i, line in enumerate(SCRIPT.splitlines(), 1) if line.strip().startswith(text))


def test_statements_that_no_call_has_run_are_found(run: tuple[Lines, Callable[..., Any]]) -> None:
    """Not counted are functions that were not called, what raises, and parts of a statement over several lines."""
    lines, forward = run
    with lines.watch():
        forward(4)
    assert lines.never_run() == []  # this call was not compared
    lines.keep()
    expected = [
        (number("return 0"), number("return 0")),
        (number("total = never"), number("total -= 1")),
        (number("total += 1"), number("total += 1")),
        (number("total *= more"), number("total *= more")),
        (number("total = -1"), number("total = -1")),
        (number("total -= 1000"), number("total -= 1000")),
    ]
    assert lines.never_run() == expected
    with lines.watch():
        assert forward(0, 2) == -1
    assert lines.never_run() == expected
    lines.keep()
    assert [first for first, _ in lines.never_run()] == [
        number(text) for text in ("return 0", "total = never", "total += 1", "total -= 1000")
    ]


def test_results_and_errors_are_the_functions_own(run: tuple[Lines, Callable[..., Any]]) -> None:
    lines, forward = run
    with lines.watch():
        assert forward(7) == forward(7)
    with pytest.raises(ValueError, match="below"), lines.watch():
        forward(-1)
    with lines.watch():
        assert forward(2) == 1


def test_a_long_loop_is_not_watched_to_its_end(
    run: tuple[Lines, Callable[..., Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then nothing is said about its function."""
    monkeypatch.setattr(watched, "MOST_EVENTS", 40)
    lines, forward = run
    with lines.watch():
        forward(60)
    lines.keep()
    told = [first for first, _ in lines.never_run()]
    assert not [line for line in told if line > number("def forward")]


def test_a_function_that_is_compiled_has_no_lines() -> None:
    source = "import torch\n@torch.compile\ndef forward(x):\n    if x:\n        return 1\n    return 2\n"
    assert not Lines(source, PATH)._bodies
    assert not Lines("def forward(:", PATH)._bodies


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("y = float(x.sum())\n        if y == 7.25:\n            x = x / 2\n        return x.sin()", "line"),
        ("y = float(x.min())\n        if y < 0:\n            x = x * 1\n        return x.sin()", ""),
    ],
)
def test_the_verdict_tells_of_them(verdict: Callable[..., tuple[str, str, Any]], body: str, said: str) -> None:
    got, _, report = verdict(body, "return x.sin()", "[torch.randn(64, 48)]")
    assert got == "SAME"
    told = [one for one in report.left_out if "which never ran" in one]
    assert [one.split()[0] for one in told] == ([said] if said else [])
