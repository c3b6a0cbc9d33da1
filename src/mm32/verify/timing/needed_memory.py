"""The memory that a verification needs, on the host and on a card, and what is said where there is not enough."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor

from ..exchange.wire import leaves
from ..processes.channel import Failure

# The most copies of inputs and of outputs that all processes together hold; and the bytes that may be needed whatever is free.
INPUTS_HELD, OUTPUTS_HELD, SURELY = 6, 12, 1 << 30
ON_A_CARD = 6, 8  # the same two numbers for inputs and outputs that stay on the card


def available() -> int:
    """Return the bytes of memory that processes may still take here, within a container's limit too."""
    free = int(psutil.virtual_memory().available)
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):  # "max" is no number
            free = min(free, int(Path(limit).read_text()) - int(Path(used).read_text()))
    return max(free, 0)


def check_host(inputs: int, outputs: int, free: int) -> None:
    """Raise Failure where a verification with so many bytes of inputs and outputs needs more memory than is `free`."""
    needed = INPUTS_HELD * inputs + OUTPUTS_HELD * outputs
    if needed > max(free, SURELY):
        parts = f"{inputs / 2**30:.1f} GiB of inputs and {outputs / 2**30:.1f} GiB of outputs"
        raise Failure(
            "memory",
            f"{parts} take about {needed / 2**30:.0f} GiB of the host's memory to verify, and {free / 2**30:.0f} GiB are "
            "free: smaller shapes show the same",
            role="reference",
        )


def check_card(inputs: int, outputs: int, free: int) -> None:
    """Raise Failure where the inputs and outputs that stay on a card need more of its memory than is `free`."""
    needed = ON_A_CARD[0] * inputs + ON_A_CARD[1] * outputs
    if needed > free:
        parts = f"{inputs / 2**30:.1f} GiB of inputs and {outputs / 2**30:.1f} GiB of outputs"
        raise Failure(
            "memory",
            f"{parts} on the card take about {needed / 2**30:.0f} GiB of its memory to verify, and {free / 2**30:.0f} GiB are "
            "free: smaller shapes show the same",
            {"on_card": True},
            role="reference",
        )


def bytes_on(tree: Any, device: str) -> int:
    """Return the bytes of a tree's tensors that this process has on a device."""
    return sum(t.nbytes for _, t in leaves(tree) if isinstance(t, Tensor) and t.device.type == device)


@contextlib.contextmanager
def memory_for(role: str) -> Iterator[None]:
    """Raise Failure where this process lacks memory, and blame the process that was started last, that of `role`."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        on_card = isinstance(error, RuntimeError) and torch.cuda.is_available()  # the driver's, or torch's
        where = " on the card" if on_card else ""
        said = f"no memory is left{where} for timed windows ({error})"
        raise Failure("memory", said, {"on_card": on_card}, role) from None
