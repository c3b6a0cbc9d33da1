"""Which statements of a script its model has not run in any call that was compared: a candidate was never asked for them."""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

MOST_EVENTS = 50_000  # lines of one function in one call, after which nothing more is noted of it

Function = tuple[str, int]  # a code's name and first line


class Lines:
    """Of one script, `source` at `path`. Calls of its model run in `watch`; `keep` says that the last one was compared."""

    def __init__(self, source: str, path: str) -> None:
        self._path = path
        # What torch.compile runs is no function of the script's any more.
        self._bodies = {} if "compile(" in source or "torch.compile" in source else dict(_functions(source))
        self._all: dict[CodeType, frozenset[int]] = {}
        self._events = 0
        self._ran: dict[Function, set[int]] = {}
        self._kept: dict[Function, set[int]] = {}
        self._unknown: set[Function] = set()  # of which not all was noted

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Note what is run meanwhile, by this thread."""
        before = sys.gettrace()
        if before is not None:  # a debugger, or a measurement of coverage
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
        """What was noted last belongs to a call that is compared."""
        for function, lines in self._ran.items():
            self._kept.setdefault(function, set()).update(lines)

    def never_run(self) -> list[tuple[int, int]]:
        """First and last lines of statements that were not run, in functions that were: neighbours as one, in order."""
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
    """The functions of a script and their statements. A code's first line is that of the first decorator."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield (node.name, min([node.lineno, *(d.lineno for d in node.decorator_list)])), node.body


def _unseen(body: list[ast.stmt], lines: set[int]) -> Iterator[tuple[int, int]]:
    """First and last lines of those statements of a function, outermost first, of which no line is among `lines`. What raises, or
    does nothing, is no answer that a candidate could give."""
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
