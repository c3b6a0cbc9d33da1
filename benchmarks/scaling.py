"""One product over several cards, mm32 beside torch: torchrun --standalone --nproc-per-node 4 benchmarks/scaling.py [-o FILE].

A is sharded by rows, B replicated ("rows": nothing is communicated) or sharded by rows too and gathered within the time ("rows, B
gathered"), or A by columns and B by rows ("K": a sum over cards, all-reduced within the time). Sizes are of the whole product
("strong") or grow with the cards ("weak": M rows for each). Rounds are interleaved, every card starts a round together, and the
slowest card's time counts. Beside these, in the same rounds, each card multiplies its own part with nothing sent ("alone"): the
cards' own rates. Errors are against float64, of rows that each card draws from its own part. The record names the number of
cards: benchmarks/results/<card>/scaling-<cards>.json.

--device cpu runs the same with gloo in small, writes nothing, and its times mean nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

import mm32
from mm32.bench import measure, record

SIZES = ((8192, 8192, 8192), (16384, 16384, 16384), (32768, 32768, 32768), (65536, 4096, 4096))  # M, K, N
SMALL = ((64, 96, 32),)
ROUNDS = 15
JUDGED = 64  # rows of each card
METHOD = (
    "one product over `cards` cards; interleaved rounds that all cards start together, the slowest card's median of CUDA events; "
    "errors against float64 on the same inputs, of 64 rows of each card; `alone` is each card's median for its own part with "
    "nothing sent, in the same rounds"
)
PLACEMENTS = {
    "rows": (Shard(0), Replicate()),
    "rows, B gathered": (Shard(0), Shard(0)),
    "K": (Shard(1), Shard(0)),
}
CASES = (
    ("rows", "strong"),
    ("rows", "weak"),
    ("rows, B gathered", "strong"),
    ("rows, B gathered", "weak"),
    ("K", "strong"),
)


def products(name: str) -> dict[str, Callable[[DTensor, DTensor], torch.Tensor]]:
    """What is compared, each up to a result that no card has to add up any more."""

    def multiplied(by: Callable[[DTensor, DTensor], Any]) -> Callable[[DTensor, DTensor], torch.Tensor]:
        def finished(a: DTensor, b: DTensor) -> torch.Tensor:
            c = by(a, b.redistribute(placements=[Replicate()]) if name == "rows, B gathered" else b)
            summed = c.placements[0].is_partial()
            local = (c.redistribute(placements=[Replicate()]) if summed else c).to_local()
            return local.wait() if hasattr(local, "wait") else local

        return finished

    return {"torch": multiplied(torch.matmul), "mm32": multiplied(mm32.matmul)}


def operand(mesh: DeviceMesh, shape: tuple[int, int], place: Any, seed: int) -> DTensor:
    """Drawn on each card: no card has to hold the whole of it; what is replicated is drawn from the same seed."""
    rank, local = mesh.get_local_rank(), list(shape)
    if place.is_shard():
        local[place.dim] //= mesh.size()
        seed = seed + 1 + rank
    generator = torch.Generator(mesh.device_type).manual_seed(seed)
    t = torch.randn(local, generator=generator, device=mesh.device_type)
    return DTensor.from_local(t, mesh, [place], run_check=False, shape=torch.Size(shape), stride=(shape[1], 1))


def timed(mesh: DeviceMesh, functions: dict[str, Callable[[], Any]], rounds: int) -> dict[str, torch.Tensor]:
    """Seconds of each function, (cards, rounds); the same number of rounds on all cards, which start each together."""
    cuda = mesh.device_type == "cuda"
    flush = torch.empty(measure.FLUSH_BYTES // 4, device="cuda") if cuda else torch.empty(1)
    times: dict[str, list[float]] = {name: [] for name in functions}
    for function in (*functions.values(), *functions.values()):
        function()
    for _ in range(rounds):
        for name, function in functions.items():
            dist.barrier()
            if cuda:
                for _ in range(4):
                    flush.zero_()
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                function()
                end.record()
                end.synchronize()
                times[name].append(begin.elapsed_time(end) * 1e-3)
            else:
                start = time.perf_counter()
                function()
                times[name].append(time.perf_counter() - start)
    here = torch.tensor([times[name] for name in functions], dtype=torch.float64, device=mesh.device_type)
    every = [torch.empty_like(here) for _ in range(mesh.size())]
    dist.all_gather(every, here)
    return dict(zip(functions, torch.stack(every, 1).cpu(), strict=True))


def error(mesh: DeviceMesh, a: DTensor, b: DTensor, local: torch.Tensor) -> float:
    """||C - C64|| / ||C64|| of JUDGED rows of each card."""
    if a.placements[0].is_shard(0):
        here = a.to_local()
        rows = torch.arange(JUDGED) * len(here) // JUDGED
        truth, got = here[rows].double() @ b.full_tensor().double(), local[rows].double()
    else:  # all cards have all of C: each judges some rows of it, of which all contribute a part
        rows = torch.arange(JUDGED) * local.shape[0] // JUDGED
        truth, got = a.to_local()[rows].double() @ b.to_local().double(), local[rows].double()
        dist.all_reduce(truth)
    norms = torch.stack([(got - truth).square().sum(), truth.square().sum()])
    dist.all_reduce(norms)
    return float((norms[0] / norms[1]).sqrt())


def row(mesh: DeviceMesh, name: str, m: int, k: int, n: int, growth: str, rounds: int) -> dict[str, Any]:
    places = PLACEMENTS[name]
    m = m * mesh.size() if growth == "weak" else m
    a, b = operand(mesh, (m, k), places[0], 0), operand(mesh, (k, n), places[1], 1000)
    calls = {which: (lambda f=function: f(a, b)) for which, function in products(name).items()}
    errors = {which: error(mesh, a, b, call()) for which, call in calls.items()}
    part = a.to_local(), b.to_local() if name == "K" else b.full_tensor()
    times = timed(mesh, calls | {"alone": lambda: mm32.matmul(*part)}, rounds)
    results: dict[str, dict[str, Any]] = {}
    for which in calls:
        slowest = times[which].amax(0).tolist()
        low, high = measure.interval(slowest)
        results[which] = {"seconds": median(slowest), "low": low, "high": high, "normwise": errors[which]}
    case = {"m": m, "k": k, "n": n, "sharded": name, "growth": growth, "cards": mesh.size()}
    return {"case": case, "results": results, "alone": [median(card) for card in times["alone"].tolist()]}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    options = parser.parse_args(arguments)
    if "WORLD_SIZE" not in os.environ:
        print("benchmarks/scaling.py is started by torchrun, a process for each card", file=sys.stderr)
        return 2
    if options.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh(options.device, (int(os.environ["WORLD_SIZE"]),))
    mm32.distributed.check(mesh)
    rows = []
    for size in SIZES if options.device == "cuda" else SMALL:
        for name, growth in CASES:
            rows.append(row(mesh, name, *size, growth, options.rounds))
            if mesh.get_rank() == 0:
                times = ", ".join(
                    f"{which} {r['seconds'] * 1e3:.3f} ms (error against float64 {r['normwise']:.1e})"
                    for which, r in rows[-1]["results"].items()
                )
                print(rows[-1]["case"], times, flush=True)
    if options.device == "cuda" and mesh.get_rank() == 0:
        folder = Path(__file__).parent / "results" / record.folder_of_card()
        made = record.make("scaling", rows, METHOD)
        made["environment"]["cards"] = mesh.size()
        record.write(options.output or folder / f"scaling-{mesh.size()}.json", made)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
