"""benchmarks/first_call.py without a card: which time it counts for which phase, and its processes."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from mm32 import gemm, prepared
from mm32.cuda import driver, launch
from support import driver_stub

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import first_call


def test_a_phase_inside_another_counts_for_itself() -> None:
    phases = first_call.Phases()
    inner = phases.wrap("load", lambda: time.sleep(0.02))
    outer = phases.wrap("cubins", lambda: (time.sleep(0.01), inner(), inner()))
    outer()
    assert 0.04 <= phases.seconds["load"] < 0.2
    assert 0.01 <= phases.seconds["cubins"] < 0.04
    assert phases.seconds["plan"] == 0
    with pytest.raises(ZeroDivisionError):
        phases.wrap("plan", lambda: 1 / 0)()
    assert phases._open == []


def test_the_phases_of_a_call_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The phases of a product, on a driver that is slow to load, add up to the time of the call."""
    card = driver_stub.install(monkeypatch)
    loads = []

    def slow(cubin: bytes) -> tuple[int, int]:
        loads.append(time.sleep(0.01))
        return card.load(cubin)

    monkeypatch.setattr(driver, "load", slow)
    a, b, out = torch.randn(256, 64), torch.randn(64, 256), torch.empty(256, 256)
    before = driver.load, prepared.planned, launch.Executable.__call__

    def call() -> None:
        plan = prepared.planned(gemm.describe(a, b, None, out), -1, "tensorcore")
        launch.Executable(plan, -1)(a, b, None, out)

    seconds = first_call.first_call(call, lambda: time.sleep(0.005))
    assert (driver.load, prepared.planned, launch.Executable.__call__) == before
    assert len(loads) >= 3
    assert seconds["load"] >= 0.01 * len(loads)
    assert min(seconds[phase] for phase in first_call.PHASES) > 0
    assert sum(seconds[phase] for phase in first_call.PHASES) == pytest.approx(seconds["call"])
    assert 0.005 <= seconds["second"] < seconds["call"]


def test_a_process_of_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def say() -> dict[str, Any]:
        return {"pid": os.getpid(), "cache": os.environ["MM32_CACHE_DIR"]}

    before = os.environ.get("MM32_CACHE_DIR")
    said = first_call.in_a_new_process(say, tmp_path)
    assert said["pid"] != os.getpid()
    assert said["cache"] == str(tmp_path)
    assert os.environ.get("MM32_CACHE_DIR") == before
    with pytest.raises(RuntimeError, match="that was timed failed"):
        first_call.in_a_new_process(lambda: {"never": 1 / 0}, tmp_path)
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_its_products_are_sizes_and_its_model_has_gradients() -> None:
    from mm32 import sizes

    assert {asked.k for text in first_call.PRODUCTS.split(",") for asked in sizes.parse(text)} >= {8192, 4096, 512}
    x = torch.randn(1, 3, first_call.WIDTH, requires_grad=True)
    block = first_call._Block()
    block(x).sum().backward()
    assert x.grad is not None
    assert all(parameter.grad is not None for parameter in block.parameters())


def test_without_a_card_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(sys, "argv", ["first_call.py"])
    assert first_call.main() == 2
    assert "needs a CUDA device" in capsys.readouterr().err
