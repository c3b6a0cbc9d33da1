"""Scripts to verify, and fixtures that run the tool on them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from mm32.verify import Report, verify
from mm32.verify.processes import launch
from mm32.verify.timing import rounds
from support.verify.scripts import HEAD, LINEAR, REFERENCE, RIGHT, forward

__all__ = [
    "HEAD", "LINEAR", "REFERENCE", "RIGHT", "Leftovers", "Run", "forward", "leftovers", "run", "short_windows",
    "whole_windows", "write",
]  # fmt: skip

Run = Callable[..., Report]
Leftovers = Callable[[], list[str]]
WHOLE, SHORT = rounds.MOST_CALLS, 40  # the most calls in a timed window: for users, and in most tests


@pytest.fixture
def leftovers() -> Leftovers:
    """The command lines of the processes that a test has left behind, except the server that workers are forked from.

    Processes that ran before the test do not count, such as the resource tracker that Python's own multiprocessing starts.
    """
    before = set(psutil.Process().children(recursive=True))

    def call() -> list[str]:
        server = launch.shared().process.pid
        found = []
        for one in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if one not in before and one.pid != server and one.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(one.cmdline()))
        return found

    return call


@pytest.fixture(autouse=True)
def short_windows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Timed windows of few calls. A call of the models here takes some 10 µs, so a window would have hundreds of calls, and
    filling their slots would take most of a verification's time. Tests marked `gpu` keep whole windows."""
    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(rounds, "MOST_CALLS", SHORT)


@pytest.fixture
def whole_windows(short_windows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows as long as users have them, for tests of times and of candidates that count calls."""
    monkeypatch.setattr(rounds, "MOST_CALLS", WHOLE)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def put(name: str, source: str) -> Path:
        path = tmp_path / name
        path.write_text(source)
        return path

    return put


@pytest.fixture
def run(write: Callable[[str, str], Path], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Verify a candidate's source against a reference's: run(source, reference=..., **options).

    It runs on the CPU on every machine, except in tests marked `gpu`.
    """
    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    def call(candidate: str | None, reference: str = REFERENCE, **options: object) -> Report:
        options = {"trials": 2, "seed": 1, "timeout": 60.0, **options}
        script = None if candidate is None else write("candidate.py", candidate)
        return verify(write("reference.py", reference), script, **options)  # type: ignore[arg-type]

    return call
