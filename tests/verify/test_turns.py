"""Verifications at the same time: comparing beside each other, measuring alone."""

from __future__ import annotations

import errno
import fcntl
import threading
import time
from pathlib import Path

import pytest

from mm32.verify.turns import Turn


def test_many_share_and_one_measures(tmp_path: Path) -> None:
    first, second, other = Turn("a card", tmp_path), Turn("a card", tmp_path), Turn("another", tmp_path)
    assert first.share(patience=0)
    assert second.share(patience=0)
    assert other.share(patience=0)
    assert not first.alone(patience=0.2)  # the second still compares
    assert other.alone(patience=0)
    second.leave()
    assert first.alone(patience=0)
    assert not second.share(patience=0.2)  # the first measures
    first.leave()
    assert second.alone(patience=0)


def test_two_that_wait_for_each_other_both_get_their_turn(tmp_path: Path) -> None:
    measured = []

    def verification(number: int) -> None:
        turn = Turn("cpu", tmp_path)
        assert turn.share()
        time.sleep(0.1)
        assert turn.alone(patience=20)
        measured.append(("begin", number))
        time.sleep(0.1)
        measured.append(("end", number))
        turn.leave()

    threads = [threading.Thread(target=verification, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [what for what, _ in measured] == ["begin", "end"] * 4
    assert all(measured[i][1] == measured[i + 1][1] for i in range(0, 8, 2))


def test_waiting_is_told(tmp_path: Path) -> None:
    one, two = Turn("cpu", tmp_path), Turn("cpu", tmp_path)
    one.share()
    two.share()
    told: list[int] = []
    assert not two.alone(lambda: told.append(1), patience=0.2)
    assert told


def test_a_folder_that_cannot_be_used_means_no_turns(tmp_path: Path) -> None:
    turn = Turn("cpu", tmp_path / "missing")
    assert turn.share()
    assert turn.alone()
    turn.leave()


def test_the_file_is_not_followed_elsewhere(tmp_path: Path) -> None:
    turn = Turn("cpu", tmp_path)
    turn.share()
    (path,) = tmp_path.iterdir()
    turn.leave()
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    assert turn.share()
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_system_without_locks_means_no_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    turn = Turn("cpu", tmp_path)
    assert turn.share()
    assert turn.alone()
