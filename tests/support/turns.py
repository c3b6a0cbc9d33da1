"""How the processes of one run share a GPU: how many there are, and which tests run while no other does."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

MEMORY_OF_A_WORKER = 2 * 2**30  # bytes: torch's own, and those of a test of a model or of verify
OF_THE_CARD = 8 * 2**30  # bytes of its memory for each worker, of which a CUDA context takes 0.5 GB


def workers() -> int:
    """Return how many processes run tests: one for each core, if memory allows, also that of the GPU."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    most = min(len(os.sched_getaffinity(0)), memory // MEMORY_OF_A_WORKER)
    if torch.cuda.is_available():
        most = min(most, torch.cuda.get_device_properties(0).total_memory // OF_THE_CARD)
    return max(1, most)


@contextlib.contextmanager
def turn(folder: Path, alone: bool) -> Iterator[None]:
    """Wait until a test may run, where `folder` is the run's: beside others, or by itself while the other processes wait."""
    from mm32.verify.processes.device_lock import DeviceLock

    lock = DeviceLock("tests", folder)
    try:
        if not (lock.acquire_shared(patience=math.inf) and (not alone or lock.acquire_exclusive(patience=math.inf))):
            raise pytest.UsageError(
                "processes take turns on the GPU by locks on files, which this folder has not: leave out -n"
            )
        yield
        if torch.cuda.memory_reserved() > OF_THE_CARD // 8:
            torch.cuda.empty_cache()  # other processes may need it
    finally:
        lock.release()
