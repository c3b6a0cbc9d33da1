"""How many verifications are on a card at once."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from pathlib import Path

import pytest

from mm32.verify.processes import capacity

# ---------------------------------------------------------------------------------------------------------- capacity


def test_as_many_run_at_once_as_there_are_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "count", lambda of: 3)
    at_once, most, lock = [0], [0], threading.Lock()
    waited: list[float] = []

    def call(_: int) -> None:
        with capacity.place(waited.append, tmp_path) as number:
            assert 0 <= number < 3
            with lock:
                at_once[0] += 1
                most[0] = max(most[0], at_once[0])
            time.sleep(0.02)
            with lock:
                at_once[0] -= 1

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(call, range(16)))
    assert most == [3]
    assert waited


def test_where_nothing_can_be_locked_nobody_waits(tmp_path: Path) -> None:
    with capacity.place(folder=tmp_path / "none") as number:
        assert number == -1


def test_the_places_are_those_of_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity.os.path, "exists", lambda path: True)
    for visible, card in (("3,1", "3"), ("", "cpu"), ("-1", "cpu"), ("GPU-ab", "GPU-ab")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert capacity.card() == card
    assert capacity.count("3") == 2
    assert capacity.count("cpu") >= 2
