"""Times products in blocks, within limits of the workspace: python benchmarks/workspace.py [-o FILE] [--without-largest].

Needs a CUDA device of 140 GB for all of it. Two large products are timed without a limit, in 2 GiB and in 1 GiB, in interleaved
rounds. One whose operands alone are 118 GB is timed in several limits, and by `direct`, which such products fell back to before.
Each runs by kernel tensorcore (mma on other cards), as a plan, so that no call is planned anew when limits alternate. Errors are
against float64, of sampled rows. Memory is the most that torch's allocator gave out during a call beyond the operands and the
result.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from mm32 import gemm
from mm32 import plan as planning
from mm32.bench import measure, record
from mm32.cuda import blocks, launch

GIB = 2**30
LIMITS = {"unlimited": None, "2 GiB": 2 * GIB, "1 GiB": GIB}
PRODUCTS = {(16384, 16384, 16384): 15, (32768, 65536, 32768): 5}  # (M, K, N): rounds
LARGEST, OF_LARGEST = (32768, 450000, 32768), {"8 GiB": 8 * GIB, "4 GiB": 4 * GIB, "2 GiB": 2 * GIB, "1 GiB": GIB}
ROWS, DEPTH = 32, 4096  # the rows that are judged; how much of K is multiplied in float64 at a time
METHOD = (
    "interleaved rounds, medians of CUDA events, one call of each for the largest product; errors against float64 on the same "
    f"inputs, of {ROWS} rows of the result; bytes allocated during a call beyond the operands and the result"
)


def drawn(rows: int, columns: int) -> torch.Tensor:
    """Return normal numbers, drawn in place, so that there is no second copy."""
    made = torch.empty(rows, columns, device="cuda")
    for piece in made.split(max(1, 2**28 // columns)):
        piece.normal_()
    return made


def truth_of(a: torch.Tensor, b: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return these rows of the product, and of the product of the magnitudes, in float64."""
    truth, size = (torch.zeros(len(rows), b.shape[1], dtype=torch.float64, device="cuda") for _ in range(2))
    for begin in range(0, a.shape[1], DEPTH):
        left, right = a[rows, begin : begin + DEPTH].double(), b[begin : begin + DEPTH].double()
        truth += left @ right
        size += left.abs() @ right.abs_()
    return truth, size


def timed(run: Callable[[], None]) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3


def row(m: int, k: int, n: int, kernels: dict[str, tuple[str, int | None]], rounds: int, warm: bool) -> dict[str, Any]:
    """Return a row: a product by each of `kernels`, name -> (kernel, limit)."""
    a, b, c = drawn(m, k), drawn(k, n), torch.empty(m, n, device="cuda")
    problem, card = gemm.describe(a, b, None, c), launch.card_of(0)
    rows = torch.arange(ROWS, device="cuda") * m // ROWS
    truth, size = truth_of(a, b, rows)
    plans = {name: planning.plan(problem, card, kernel, limit=limit) for name, (kernel, limit) in kernels.items()}
    runs = {name: blocks.executable(plan, 0) for name, plan in plans.items()}
    results: dict[str, dict[str, Any]] = {}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for name, run in runs.items():
        plan, cut = plans[name], plans[name].blocks
        torch.cuda.empty_cache()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        try:
            first = timed(lambda run=run: run(a, b, None, c))  # type: ignore[misc]
        except torch.OutOfMemoryError as error:
            results[name] = {"kernel": plan.kernel, "error": str(error).splitlines()[0]}
            continue
        if not warm:
            times[name].append(first)
        taken = torch.cuda.max_memory_allocated() - before
        error, gauge = measure.errors(c[rows], truth, size)
        results[name] = {
            "kernel": plan.kernel, "limit": kernels[name][1], "workspace": plan.workspace.bytes if plan.workspace else 0,
            "taken": taken, "estimate": dict(plan.estimates)[plan.kernel], "error": error, "gauge": gauge,
            "blocks": cut.count if cut else 1, "rows": cut.rows if cut else m, "columns": cut.columns if cut else n,
            "spans": cut.spans if cut else 1,
        }  # fmt: skip
    for _ in range(rounds):
        for name in [name for name in runs if "taken" in results[name]]:
            times[name].append(timed(lambda run=runs[name]: run(a, b, None, c)))  # type: ignore[misc]
    for name, seconds in times.items():
        if seconds:
            low, high = measure.interval(seconds)
            results[name] |= {"seconds": median(seconds), "low": low, "high": high}
    return {"case": f"{m}x{k}x{n} nn", "m": m, "k": k, "n": n, "rounds": rounds, "results": results}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, help="default benchmarks/results/<card>/workspace.json")
    parser.add_argument("--without-largest", action="store_true", help="only what fits a card of 80 GB")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("benchmarks/workspace.py needs a CUDA device; torch finds none here", file=sys.stderr)
        return 2
    torch.manual_seed(0)
    kernel, rows = planning.emulated_kernel(launch.card_of(0)), []
    path = options.output or Path(__file__).parent / "results" / record.folder_of_card() / "workspace.json"
    asked = [
        (size, {name: (kernel, limit) for name, limit in LIMITS.items()}, rounds) for size, rounds in PRODUCTS.items()
    ]
    if not options.without_largest:
        of_largest: dict[str, tuple[str, int | None]] = {name: (kernel, limit) for name, limit in OF_LARGEST.items()}
        asked.append((LARGEST, {**of_largest, "direct": ("direct", None)}, 0))
    for size, kernels, rounds in asked:
        torch.cuda.empty_cache()
        rows.append(row(*size, kernels, rounds, warm=rounds > 0))
        for name, result in rows[-1]["results"].items():
            print(rows[-1]["case"], name, result, flush=True)
        record.write(path, record.make("workspace", rows, METHOD))
    return 0


if __name__ == "__main__":
    sys.exit(main())
