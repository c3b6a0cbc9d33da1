"""Finding the processes below a process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace

import psutil
import pytest

from mm32.verify.processes import descendants, supervisor
from mm32.verify.processes.process import WorkerProcess

# Starts a process from a thread; that process starts another one. Then says so, and waits for the end of its input.
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
        with contextlib.suppress(psutil.Error, ProcessLookupError):
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
    give_up = time.monotonic() + 10
    while found[-1].name() == "sh" and time.monotonic() < give_up:
        time.sleep(0.01)  # the child is forked, and not yet sleep
    assert [process.name() for process in found] == ["sh", "sleep"]
    assert {process.pid for process in found} == {
        process.pid for process in psutil.Process(tree.pid).children(recursive=True)
    }


def test_what_a_supervisor_that_was_killed_leaves_behind_is_ended(tree: subprocess.Popen[bytes]) -> None:
    """This holds though a look at the supervisor in between finds nothing below it."""
    worker = WorkerProcess.__new__(WorkerProcess)
    worker._below = []
    worker.launched = SimpleNamespace(supervisor=tree.pid, lost=True, end=lambda: None)  # type: ignore[assignment]
    left = worker._members()
    assert len(left) == 2
    tree.kill()
    tree.wait()
    assert worker._members() == []
    worker.end()
    _, alive = psutil.wait_procs(left, timeout=5)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("listed", [True, False])
def test_a_process_that_has_ended_has_none(listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    monkeypatch.setattr(descendants, "_listed", lambda: listed)
    assert descendants.below(ended.pid) == []


def test_a_process_descends_from_what_its_chain_of_parents_reaches() -> None:
    assert supervisor._descends(30, 1, {30: 20, 20: 10, 10: 1})
    assert not supervisor._descends(30, 1, {30: 20, 20: 0})
    assert not supervisor._descends(30, 1, {30: 20, 20: 30})  # process numbers were given out again


def test_a_process_whose_parent_ended_meanwhile_is_looked_at_again() -> None:
    gone = 2**22 + 1  # a process number above those that the system gives out
    assert supervisor._descends(os.getpid(), os.getppid(), {os.getpid(): gone})
    assert not supervisor._descends(gone, os.getppid(), {gone: gone - 1})


def test_a_list_of_children_that_leaves_one_out_once_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's list does so where another child is reaped meanwhile: once in some 20 000, if a process forks all the time."""
    readings = [{11, 12}, {11}, {11, 12}, {11, 12}]
    monkeypatch.setattr(descendants, "_read_children", lambda pid: readings.pop(0))
    assert descendants._children(1) == {11, 12}
    readings[:] = [{11}, {11, 12}, {11, 12}, {13}]
    assert descendants._children(1) == {11, 12}
    assert readings == [{13}]
