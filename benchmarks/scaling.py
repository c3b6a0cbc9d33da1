"""One product over several cards, mm32 beside torch: torchrun --standalone --nproc-per-node 2 benchmarks/scaling.py [-o FILE].

The operands are sharded in one of four ways:

rows                A by rows, B replicated: nothing is communicated
rows, B gathered    both by rows; B is gathered within the time
rows, B overlapped  A by rows, B by columns; B is gathered while each card multiplies by the columns that it has
K                   A by columns, B by rows: a sum over cards, all-reduced within the time

Sizes are of the whole product ("strong") or grow with the cards ("weak": M rows for each). Rounds are interleaved, all cards
start a call together, and the slowest card's time counts. In the same rounds, each card also multiplies by itself with nothing
sent: its own part ("alone") and, where one product is shared by rows, all of it ("whole"). These give the cards' own rates. By
rows, the product is also timed with B packed beforehand by mm32.pack ("mm32-packed"). torch is left out where its time would be
most of the run: TORCH_FLOPS.

Errors are against float64, of JUDGED rows on each card. The record is benchmarks/results/<card>/scaling-<cards>.json, written
after each row; --resume measures the rows that it lacks. All sizes take about a minute on two H200s and need 40 GB on each card.
NVLink multicast stays off.

--device cpu runs the same in small sizes with gloo. Its times mean nothing, so it writes a record only if -o says where.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
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

sys.path.append(str(Path(__file__).parent))  # for when this file is loaded by its path
import scaling_estimate as estimated

SIZES = ((8192, 8192, 8192), (16384, 16384, 16384), (32768, 32768, 32768), (65536, 4096, 4096))  # M, K, N
SMALL = ((64, 96, 32),)
LEAST, MOST = 5, 15  # the least and the most rounds
BUDGET = 3.0  # seconds after which a row's rounds end, once LEAST are done
JUDGED = 64  # rows on each card that are compared with float64
# The most FLOP of a card's part for which torch is timed: it takes 0.2 s on an H200. By rows, one product shared by all cards
# ("strong") is timed with torch at any size.
TORCH_FLOPS = 2**43
TIMEOUT = 180  # the most seconds of a collective
MULTICAST_OFF = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
METHOD = (
    "one product over `cards` cards; interleaved rounds that all cards start together, the slowest card's median of CUDA events; "
    f"errors against float64 on the same inputs, of {JUDGED} rows of each card; `alone` is each card's median for its own part "
    "with nothing sent, and `whole` for all of the product by itself, in the same rounds; NVLink multicast off"
)
PLACEMENTS = {
    "rows": (Shard(0), Replicate()),
    "rows, B gathered": (Shard(0), Shard(0)),
    "rows, B overlapped": (Shard(0), Shard(1)),
    "K": (Shard(1), Shard(0)),
}
CASES = (
    ("rows", "strong"),
    ("rows", "weak"),
    ("rows, B gathered", "strong"),
    ("rows, B gathered", "weak"),
    ("rows, B overlapped", "strong"),
    ("rows, B overlapped", "weak"),
    ("K", "strong"),
)


def products(name: str) -> dict[str, Callable[[DTensor, DTensor], torch.Tensor]]:
    """Return the implementations that are compared, by name. Each returns a result that needs no further sum over cards."""

    def multiplied(by: Callable[[DTensor, DTensor], Any]) -> Callable[[DTensor, DTensor], torch.Tensor]:
        def finished(a: DTensor, b: DTensor) -> torch.Tensor:
            c = by(a, b.redistribute(placements=[Replicate()]) if name == "rows, B gathered" else b)
            summed = c.placements[0].is_partial()
            local = (c.redistribute(placements=[Replicate()]) if summed else c).to_local()
            return local.wait() if hasattr(local, "wait") else local

        return finished

    if name == "rows, B overlapped":
        return {"mm32": overlapped}
    return {"torch": multiplied(torch.matmul), "mm32": multiplied(mm32.matmul)}


def overlapped(a: DTensor, b: DTensor) -> torch.Tensor:
    """Return this card's rows of a @ b, where b is sharded by columns.

    b is gathered while a is multiplied by the columns that are here. a is packed once, for all columns.
    """
    mesh, mine = a.device_mesh, b.to_local()
    cards, rank = mesh.size(), mesh.get_local_rank()
    gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)  # the names since torch 2.13 and before it
    parts = mine.new_empty(cards * len(mine), mine.shape[1])
    gathering = gather(parts, mine, group=mesh.get_group(), async_op=True)
    here = mm32.pack(a.to_local(), side="left")
    result = mine.new_empty(here.shape[0], b.shape[1])
    mm32.matmul(here, mine, out=result.chunk(cards, 1)[rank])
    gathering.wait()
    for i, part, columns in zip(range(cards), parts.chunk(cards), result.chunk(cards, 1), strict=True):
        if i != rank:
            mm32.matmul(here, part, out=columns)
    return result


def operand(mesh: DeviceMesh, shape: tuple[int, int], place: Any, seed: int) -> DTensor:
    """Return an operand drawn on each card: no card holds all of a sharded one. A replicated one has the same seed on all."""
    rank, local = mesh.get_local_rank(), list(shape)
    if place.is_shard():
        local[place.dim] //= mesh.size()
        seed = seed + 1 + rank
    generator = torch.Generator(mesh.device_type).manual_seed(seed)
    t = torch.randn(local, generator=generator, device=mesh.device_type)
    return DTensor.from_local(t, mesh, [place], run_check=False, shape=torch.Size(shape), stride=(shape[1], 1))


def start(device: str) -> DeviceMesh:
    """Return the mesh of all ranks, in a process that torchrun started. NVLink multicast stays off in NCCL, torch and NVSHMEM."""
    os.environ.update(MULTICAST_OFF)
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # If one rank alone fails, the others end after this timeout, not after NCCL's ten minutes.
    dist.init_process_group("nccl" if device == "cuda" else "gloo", timeout=datetime.timedelta(seconds=TIMEOUT))
    mesh = init_device_mesh(device, (int(os.environ["WORLD_SIZE"]),))
    mm32.distributed.check(mesh)
    return mesh


def agreed(mesh: DeviceMesh, value: float) -> float:
    """Return the largest of the ranks' values."""
    largest = torch.tensor(value, dtype=torch.float64, device=mesh.device_type)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return float(largest)


def timed(
    mesh: DeviceMesh,
    functions: dict[str, Callable[[], Any]],
    budget: float,
    within: Callable[[str], contextlib.AbstractContextManager[Any]] = lambda name: contextlib.nullcontext(),
) -> dict[str, torch.Tensor]:
    """Return the seconds of each function, (cards, rounds).

    There are LEAST rounds, then more until there are MOST or `budget` seconds are over. All cards start each call together and
    have the same number of rounds. `within(name)` is entered before a call and left after it, untimed.
    """
    cuda = mesh.device_type == "cuda"
    flush = torch.empty(measure.FLUSH_BYTES // 4, device="cuda") if cuda else torch.empty(1)
    times: dict[str, list[float]] = {name: [] for name in functions}
    for name, function in functions.items():
        with within(name):
            function()
    began = time.monotonic()
    for done in range(MOST):
        if done >= LEAST and agreed(mesh, time.monotonic() - began) > budget:
            break
        for name, function in functions.items():
            with within(name):
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
    """Return ||C - C64|| / ||C64|| of JUDGED rows on each card."""
    if a.placements[0].is_shard(0):
        here = a.to_local()
        rows = torch.arange(JUDGED) * len(here) // JUDGED
        truth, got = here[rows].double() @ b.full_tensor().double(), local[rows].double()
    else:  # all cards have all of C: they judge the same rows, whose float64 truth is summed over the cards
        rows = torch.arange(JUDGED) * local.shape[0] // JUDGED
        truth, got = a.to_local()[rows].double() @ b.to_local().double(), local[rows].double()
        dist.all_reduce(truth)
    norms = torch.stack([(got - truth).square().sum(), truth.square().sum()])
    dist.all_reduce(norms)
    return float((norms[0] / norms[1]).sqrt())


def row(mesh: DeviceMesh, name: str, m: int, k: int, n: int, growth: str) -> dict[str, Any]:
    places = PLACEMENTS[name]
    m = m * mesh.size() if growth == "weak" else m
    shared = name == "rows" and growth == "strong"
    a, b = operand(mesh, (m, k), places[0], 0), operand(mesh, (k, n), places[1], 1000)
    calls = {which: (lambda f=function: f(a, b)) for which, function in products(name).items()}
    if not (shared or 2 * m * k * n <= TORCH_FLOPS * mesh.size()):
        calls.pop("torch", None)
    if name == "rows":
        packed = mm32.pack(b)
        calls["mm32-packed"] = lambda: products(name)["mm32"](a, packed)
    errors = {which: error(mesh, a, b, call()) for which, call in calls.items()}
    part = a.to_local(), b.to_local() if name == "K" else b.full_tensor()
    own: dict[str, Callable[[], Any]] = {"alone": lambda: mm32.matmul(*part)}
    if shared:
        whole = torch.randn(m, k, device=mesh.device_type)
        own["whole"] = lambda: mm32.matmul(whole, part[1])
    times = timed(mesh, calls | own, BUDGET if mesh.device_type == "cuda" else 0.0)
    results: dict[str, dict[str, Any]] = {}
    for which in calls:
        slowest = times[which].amax(0).tolist()
        low, high = measure.interval(slowest)
        results[which] = {"seconds": median(slowest), "low": low, "high": high, "normwise": errors[which]}
    if mesh.device_type == "cuda":
        of = measure.Case(len(part[0]), n, part[0].shape[1])
        results["mm32"]["kernel"] = measure.kernel_of(of, "mm32", (*part, None))
    case = {"m": m, "k": k, "n": n, "sharded": name, "growth": growth, "cards": mesh.size()}
    rates = {which: [median(card) for card in times[which].tolist()] for which in own}
    return {"case": case, "rounds": times["mm32"].shape[1], "results": results, **rates}


def kept(mesh: DeviceMesh, path: Path | None, environment: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the record that is there, the same on all ranks.

    There are none if the record is of other cards, other versions or older kernels: one table must not mix its rows with new
    ones.
    """
    rows: list[Any] = [[]]
    if mesh.get_rank() == 0 and path is not None and path.exists():
        made = record.read(path)
        if made["environment"] == environment and not record.stale(made):
            rows = [made["rows"]]
        else:
            print(f"{path} is of other cards, versions or kernels: all is measured anew", flush=True)
    dist.broadcast_object_list(rows)
    return rows[0]


def written_to(options: argparse.Namespace, name: str) -> Path | None:
    """Return where the record goes: -o, or the folder of the card; None on the CPU without -o."""
    if options.output is not None or options.device == "cpu":
        return options.output
    return Path(__file__).parent / "results" / record.folder_of_card() / f"{name}.json"


def said(row: dict[str, Any]) -> str:
    """Return a line for the log: times with their errors, and shares of the cards' own rates."""
    times = ", ".join(
        f"{which} {r['seconds'] * 1e3:.3f} ms (error against float64 {r['normwise']:.1e})"
        for which, r in row["results"].items()
    )
    shares = [f"{estimated.share(row):.3f} of the cards' own rates"]
    if "whole" in row:
        shares.append(f"{estimated.share_of_whole(row):.3f} of their rates for the whole product")
    return f"{row['case']} {times}; mm32 {', '.join(shares)}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--resume", action="store_true", help="only what the record has not got")
    parser.add_argument(
        "--sides", nargs="+", type=int, metavar="M", help="of the products, those of so many rows; with -o"
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    options = parser.parse_args(arguments)
    if options.sides and not options.output:
        parser.error("--sides leaves rows out: say with -o where the record goes")
    if "WORLD_SIZE" not in os.environ:
        print("benchmarks/scaling.py is started by torchrun, a process for each card", file=sys.stderr)
        return 2
    mesh = start(options.device)
    path = written_to(options, f"scaling-{mesh.size()}")
    environment = record.environment() | {"cards": mesh.size()}
    rows = kept(mesh, path, environment) if options.resume else []
    done = [r["case"] for r in rows]
    for size in SIZES if options.device == "cuda" else SMALL:
        if options.sides and size[0] not in options.sides:
            continue
        for name, growth in CASES:
            m = size[0] * mesh.size() if growth == "weak" else size[0]
            case = {"m": m, "k": size[1], "n": size[2], "sharded": name, "growth": growth, "cards": mesh.size()}
            if case in done:
                continue
            rows.append(row(mesh, name, *size, growth))
            if options.device == "cuda":
                torch.cuda.empty_cache()
            if mesh.get_rank() == 0:
                print(said(rows[-1]), flush=True)
                if path is not None:
                    record.write(path, record.make("scaling", rows, METHOD) | {"environment": environment})
    # gloo's threads need Python's lock to release the last collective's tensors. If Python ends before that, torch aborts.
    time.sleep(0.1)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
