"""Which processes are below one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from mm32.verify.processes import descendants

# Starts a process in a thread, which starts one itself; says so, and waits for the end of its input.
TREE = """
import subprocess, sys, threading
def start():
    global child
    child = subprocess.Popen(["sh", "-c", "sleep 60 & echo; wait"], stdout=subprocess.PIPE)
    child.stdout.readline()
    print(flush=True)
    held.wait()
held = threading.Event()
threading.Thread(target=start, daemon=True).start()
sys.stdin.read()
"""


@pytest.fixture
def tree() -> Iterator[subprocess.Popen[bytes]]:
    root = subprocess.Popen([sys.executable, "-c", TREE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert root.stdout is not None
    root.stdout.readline()
    below = psutil.Process(root.pid).children(recursive=True)
    yield root
    for process in [*below, root]:
        process.kill()
    root.wait()
    root.stdout.close()


@pytest.mark.parametrize("listed", [True, False])
def test_they_are_those_of_all_threads_and_what_these_started(
    tree: subprocess.Popen[bytes], listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if listed and not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        pytest.skip("this system does not list children")
    monkeypatch.setattr(descendants, "_listed", lambda: listed)
    found = descendants.below(tree.pid)
    assert [process.name() for process in found] == ["sh", "sleep"]
    assert {process.pid for process in found} == {
        process.pid for process in psutil.Process(tree.pid).children(recursive=True)
    }


@pytest.mark.parametrize("listed", [True, False])
def test_a_process_that_has_ended_has_none(listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    monkeypatch.setattr(descendants, "_listed", lambda: listed)
    assert descendants.below(ended.pid) == []
