"""Finds the statements of a script that its model has run in no compared call: a candidate was never tested on them."""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

MOST_EVENTS = 50_000  # lines run in one call of the model, after which nothing more is noted of its functions

Function = tuple[str, int]  # a code's name and first line


class Lines:
    """Notes which lines of one script (`source` at `path`) have run.

    Calls of its model run inside `watch`; `keep` says that the last call was compared.
    """

    def __init__(self, source: str, path: str) -> None:
        self._path = path
        # Under torch.compile, the code that runs is no longer a function of the script.
        self._bodies = {} if "compile(" in source or "torch.compile" in source else dict(_functions(source))
        self._all: dict[CodeType, frozenset[int]] = {}
        self._events = 0
        self._ran: dict[Function, set[int]] = {}
        self._kept: dict[Function, set[int]] = {}
        self._unknown: set[Function] = set()  # functions whose lines were not all noted

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Note which lines this thread runs inside the block."""
        before = sys.gettrace()
        if before is not None:  # a debugger or a coverage tool is tracing already
            self._unknown |= self._bodies.keys()
            yield
            return
        self._ran, self._events = {}, 0
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def keep(self) -> None:
        """Count what was noted last as run in a compared call."""
        for function, lines in self._ran.items():
            self._kept.setdefault(function, set()).update(lines)

    def never_run(self) -> list[tuple[int, int]]:
        """Return the first and last lines of statements that did not run, in functions that did: in order, neighbours merged."""
        found: list[tuple[int, int]] = []
        for function, lines in self._kept.items():
            if function not in self._unknown:
                found += _unseen(self._bodies.get(function, []), lines)
        merged: list[tuple[int, int]] = []
        for first, last in sorted(found):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = merged[-1][0], max(last, merged[-1][1])
            else:
                merged.append((first, last))
        return merged

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        function = code.co_name, code.co_firstlineno
        if code.co_filename != self._path or function not in self._bodies:
            return None
        lines = self._ran.setdefault(function, set())
        if code not in self._all:
            self._all[code] = frozenset(line for *_, line in code.co_lines() if line is not None)
        whole = self._all[code]
        if lines >= whole:
            return None

        def noted(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "line":
                self._events += 1
                lines.add(frame.f_lineno)
                if self._events > MOST_EVENTS:
                    self._unknown.add(function)
                if lines >= whole or self._events > MOST_EVENTS:
                    frame.f_trace_lines = False
            return noted

        lines.add(frame.f_lineno)
        return noted


def _functions(source: str) -> Iterator[tuple[Function, list[ast.stmt]]]:
    """Yield each function of a script with its statements. The first line of a code object is that of the first decorator."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield (node.name, min([node.lineno, *(d.lineno for d in node.decorator_list)])), node.body


def _unseen(body: list[ast.stmt], lines: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last lines of the statements of a function, outermost first, that have no line in `lines`. Statements
    that raise or do nothing are left out: they give no answer that a candidate could be compared with."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or _answers_nothing(statement):
            continue
        first, last = statement.lineno, statement.end_lineno or statement.lineno
        if not any(first <= line <= last for line in lines):
            yield first, last
            continue
        parts: list[list[ast.stmt]] = [getattr(statement, name, None) or [] for name in ("body", "orelse", "finalbody")]
        parts += [handler.body for handler in getattr(statement, "handlers", None) or []]
        parts += [case.body for case in getattr(statement, "cases", None) or []]
        for part in parts:
            if not all(map(_answers_nothing, part)) and not _raises(part):
                yield from _unseen(part, lines)


def _raises(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Raise)


def _answers_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, (ast.Raise, ast.Pass, ast.Assert, ast.Continue, ast.Break, ast.Global, ast.Nonlocal))
