"""Marks that leave tests out, and say so in the end; seeds; a kernel cache of the session's own."""

from __future__ import annotations

import os
import random
import shutil
import zlib
from collections.abc import Iterator

import pytest
import torch

NO_GPU = "no CUDA device here"
NO_SANITIZER = "no compute-sanitizer on the PATH"


def pytest_runtest_setup(item: pytest.Item) -> None:
    gpu = item.get_closest_marker("gpu") or item.get_closest_marker("sanitizer")
    if gpu and not torch.cuda.is_available():
        pytest.skip(NO_GPU)
    if item.get_closest_marker("sanitizer") and shutil.which("compute-sanitizer") is None:
        pytest.skip(NO_SANITIZER)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    for kind, reason in (("gpu", NO_GPU), ("sanitizer", NO_SANITIZER)):
        count = sum(reason in text for text in skipped)
        if count:
            terminalreporter.write_line(f"{count} {kind} tests left out: {reason}", yellow=True)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A number that depends on the test's name only; torch's generators start from it."""
    value = zlib.crc32(request.node.nodeid.encode())
    torch.manual_seed(value)
    return value


@pytest.fixture
def rng(seed: int) -> random.Random:
    return random.Random(seed)


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Kernels that tests compile go to a folder of their own, unless MM32_CACHE_DIR names one."""
    os.environ.setdefault("MM32_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))


@pytest.fixture
def panels_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without the tiles of the kernel tensorcore that split their own operands: those add up in another order of K."""
    from gpu_support import forget_plans  # here: it asks mm32 for the planner, which some tests do without
    from mm32 import plan as planning

    packing = tuple(tile for tile in planning.emulated.TENSOR_TILES if not tile.inline)
    monkeypatch.setattr(planning.emulated, "TENSOR_TILES", packing)
    forget_plans()
    yield
    forget_plans()
