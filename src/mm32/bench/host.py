"""What a call costs on the host: the time until it returns, without waiting for the device."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import torch

import mm32
from mm32 import gemm
from mm32 import plan as planning
from mm32.cuda import launch

SIZES = (256, 256, 64)  # M, N, K: so small that the device never falls behind the host
CALLS = 100
METHOD = (
    f"host seconds of a call, the least of the rounds' means over {CALLS} calls; the device idle at the start of a round. "
    '"launch": one launch by the driver, its argument filled in before. "enabled": torch.matmul in rounds of its own, while '
    "mm32.enable() is on and leaves it to torch"
)


def seconds(calls: dict[str, Callable[[], object]], rounds: int = 60) -> dict[str, float]:
    """Return the host seconds of each call: the least of its rounds' means over CALLS calls, so that interruptions do not count.
    The rounds of the calls alternate, so that slow periods of the machine affect all of them."""
    for call in calls.values():
        call()
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            best[name] = min(best[name], (time.perf_counter() - start) / CALLS)
    torch.cuda.synchronize()
    return best


def measure(rounds: int = 60) -> list[dict[str, Any]]:
    """Measure the one row of a record on the current card: the host "seconds" of torch.matmul, of the same while mm32 is on and
    leaves it to torch, of one launch by itself, and of mm32's kernels, with the number of their "launches"."""
    m, n, k = SIZES
    a, b = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
    index = torch.cuda.current_device()
    card = launch.card_of(index)
    results: dict[str, dict[str, Any]] = {"torch": {}, "launch": {}}
    calls: dict[str, Callable[[], object]] = {
        "torch": lambda: torch.matmul(a, b),
        "launch": _one_launch(a, b, card, index),
    }
    for kernel in ("tiled", "simt", "tensorcore"):
        if planning.unsupported(kernel, card) is None:
            plan = planning.plan(gemm.describe(a, b, None, torch.empty(m, n, device="cuda")), card, kernel)
            results[kernel] = {"kernel": kernel, "launches": len(plan.launches)}
            calls[kernel] = functools.partial(mm32.matmul, a, b, kernel=kernel)
    for name, taken in seconds(calls, rounds).items():
        results[name]["seconds"] = taken
    with mm32.enabled():
        results["enabled"] = {"seconds": seconds({"torch": calls["torch"]}, rounds)["torch"]}
    return [{"case": f"{m}x{k}x{n}", "results": results}]


def _one_launch(a: torch.Tensor, b: torch.Tensor, card: planning.Card, index: int) -> Callable[[], object]:
    """Return a function that does only the launch of launch.Executable.__call__."""
    out = torch.empty(a.shape[0], b.shape[1], device="cuda")
    runner = launch.Executable(planning.plan(gemm.describe(a, b, None, out), card, "tiled"), index)
    runner(a, b, None, out)
    filled, start = runner._free[-1], runner._launch
    (arguments,) = filled.launches

    def launch_again() -> object:
        assert filled is runner._free[-1]  # the arguments lie in its memory
        return start(*arguments, None)

    return launch_again
