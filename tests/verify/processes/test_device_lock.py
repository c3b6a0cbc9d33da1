"""Verifications at the same time: they compare beside each other, and measure alone."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mm32.verify import verify
from mm32.verify.processes import device_lock
from mm32.verify.processes.device_lock import DeviceLock
from mm32.verify.session import WAITING, Session
from support.verify.fixtures import REFERENCE, RIGHT


def test_many_share_and_one_measures(tmp_path: Path) -> None:
    first, second, other = (
        DeviceLock("a card", tmp_path),
        DeviceLock("a card", tmp_path),
        DeviceLock("another", tmp_path),
    )
    assert first.acquire_shared(patience=0)
    assert second.acquire_shared(patience=0)
    assert other.acquire_shared(patience=0)
    assert not first.acquire_exclusive(patience=0.2)  # the second still compares
    assert other.acquire_exclusive(patience=0)
    second.release()
    assert first.acquire_exclusive(patience=0)
    assert not second.acquire_shared(patience=0.2)  # the first measures
    first.release()
    assert second.acquire_exclusive(patience=0)


def test_two_that_wait_for_each_other_both_get_their_turn(tmp_path: Path) -> None:
    measured = []

    def verification(number: int) -> None:
        lock = DeviceLock("cpu", tmp_path)
        assert lock.acquire_shared()
        time.sleep(0.1)
        assert lock.acquire_exclusive(patience=20)
        measured.append(("begin", number))
        time.sleep(0.1)
        measured.append(("end", number))
        lock.release()

    threads = [threading.Thread(target=verification, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [what for what, _ in measured] == ["begin", "end"] * 4
    assert all(measured[i][1] == measured[i + 1][1] for i in range(0, 8, 2))


READER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from device_lock import DeviceLock  # alone: readers need not load all of the library
end = time.monotonic() + 60
while time.monotonic() < end and not Path(sys.argv[1], "stop").exists():
    lock = DeviceLock("cpu", Path(sys.argv[1]))
    assert lock.acquire_shared()
    Path(sys.argv[1], "reads").open("a").write("r")
    time.sleep(0.3)
    lock.release()
"""


def test_a_stream_of_those_that_compare_does_not_starve_the_one_that_waits_to_measure(tmp_path: Path) -> None:
    # Each reader holds the lock all of its time but for an instant, so that one of three always has it.
    readers = [
        subprocess.Popen([sys.executable, "-c", READER, str(tmp_path), str(Path(device_lock.__file__).parent)])
        for _ in range(3)
    ]
    reads = tmp_path / "reads"
    try:
        while not (reads.exists() and len(reads.read_text()) >= 9):
            assert all(reader.poll() is None for reader in readers)
            time.sleep(0.05)
        lock = DeviceLock("cpu", tmp_path)
        assert lock.acquire_shared()
        assert lock.acquire_exclusive(patience=20)
        during = len(reads.read_text())
        time.sleep(0.5)
        assert len(reads.read_text()) == during  # it measures alone
        lock.release()
        while len(reads.read_text()) < during + 3:  # then the readers go on
            assert all(reader.poll() is None for reader in readers)
            time.sleep(0.05)
    finally:
        (tmp_path / "stop").touch()
        assert [reader.wait(30) for reader in readers] == [0, 0, 0]


def test_waiting_is_told(tmp_path: Path) -> None:
    one, two = DeviceLock("cpu", tmp_path), DeviceLock("cpu", tmp_path)
    one.acquire_shared()
    two.acquire_shared()
    told: list[int] = []
    assert not two.acquire_exclusive(lambda: told.append(1), patience=0.2)
    assert told


def test_a_folder_that_cannot_be_used_means_no_turns(tmp_path: Path) -> None:
    lock = DeviceLock("cpu", tmp_path / "missing")
    assert lock.acquire_shared()
    assert lock.acquire_exclusive()
    lock.release()


def test_the_file_is_not_followed_elsewhere(tmp_path: Path) -> None:
    lock = DeviceLock("cpu", tmp_path)
    lock.acquire_shared()
    path = next(tmp_path.glob("*.lock"))
    lock.release()
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    assert lock.acquire_shared()
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_system_without_locks_means_no_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock = DeviceLock("cpu", tmp_path)
    assert lock.acquire_shared()
    assert lock.acquire_exclusive()


@pytest.mark.parametrize(
    "stage",
    [
        pytest.param("comparing, trial 2", marks=pytest.mark.slow),
        "probing",
        pytest.param("judging timed calls", marks=pytest.mark.slow),
    ],
)
def test_who_waits_to_measure_goes_between_two_steps_of_another_verification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """It does not wait until all is compared, and its time does not count as the probes' time."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for name, script in (("Model", REFERENCE), ("ModelNew", RIGHT)):
        (tmp_path / f"{name}.py").write_text(script)
    measured: list[tuple[float, float]] = []
    begun = threading.Event()

    def measure() -> None:
        begun.wait(60)
        lock = DeviceLock("cpu")
        assert lock.acquire_shared()
        assert lock.acquire_exclusive(patience=60)
        begin = time.monotonic()
        time.sleep(1.0)
        lock.release()
        measured.append((begin, time.monotonic()))

    ends = []
    at = Session.at

    def told(session: Session, doing: str) -> None:
        if doing.startswith(stage) and not begun.is_set():
            begun.set()
            time.sleep(0.3)  # until the other one waits
        at(session, doing)

    monkeypatch.setattr(Session, "at", told)
    thread = threading.Thread(target=measure)
    thread.start()
    report = verify(tmp_path / "Model.py", tmp_path / "ModelNew.py", seed=1, trials=3)
    ends.append(time.monotonic())
    thread.join(60)
    assert report.verdict.same, report.reason
    assert report.stages[WAITING] >= 0.8
    assert measured[0][1] < ends[0]
    assert not any("left out" in str(p.get("reason")) for p in report.probes)
