"""Training steps over several cards: torchrun --standalone --nproc-per-node 2 benchmarks/parallel_steps.py.

Programs (--only takes their names):

mlp     a tensor parallel MLP with its norm (SequenceParallel, ColwiseParallel, RowwiseParallel), eager: forward, backward, AdamW
blocks  blocks of a GPT-2, tensor parallel in the same way, eager: forward and backward
async   the same blocks compiled, with and without async tensor parallel (torch's symmetric memory, inductor's
        _micro_pipeline_tp), and on the same local shapes with nothing sent: shows how much communication is exposed, and how much
        of that async hides
        blocks and async are also timed with the whole step captured in a CUDA graph and replayed, which excludes the host's time
fsdp    the blocks under fully_shard, each rank with a batch of its own: forward and backward, beside the same blocks on one card
        without it, and the step's products timed one by one

Each is timed with torch fp32 and with mm32 (mm32.enabled; "mm32.nn" is mm32.replace_linear without it), in interleaved rounds on
the same data. All cards start a step together, and the slowest card's time counts. Errors are against float64 on the same data:
of the output, and of the gradient of all parameters, at the full size. The float64 step recomputes each block in its backward
pass.

The record is benchmarks/results/<card>/parallel-<cards>.json, written after each program; --resume measures the programs that it
lacks. All programs take about 100 s on two H200s and need 60 GB on each card. NVLink multicast stays off.

--small --device cpu runs the same in small sizes with gloo. Its times mean nothing, so it writes a record only if -o says where.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

import mm32
from mm32.bench import measure, record

sys.path.append(str(Path(__file__).parent))  # for when this file is loaded by its path
import scaling
from parallel.arms import Arm, Captured, Program, Truth, agree, reason, whole
from parallel.asynchronous import asynchronous
from parallel.eager import blocks, mlp
from parallel.fsdp import fsdp
from parallel.models import FULL, SMALL, Sizes

BUDGET = 5.0  # seconds of a program's rounds; at least scaling.LEAST rounds are timed
PROGRAMS: dict[str, Callable[[DeviceMesh, Sizes], Program]] = {
    "mlp": mlp,
    "blocks": blocks,
    "async": asynchronous,
    "fsdp": fsdp,
}
METHOD = (
    "training steps over `cards` cards; interleaved rounds that all cards start together, the slowest card's median of CUDA "
    "events, 95 % intervals of the medians and of the rounds' ratios; errors against the same step in float64 at full size; "
    "NVLink multicast off (NCCL_NVLS_ENABLE=0, TORCH_SYMM_MEM_DISABLE_MULTICAST=1, NVSHMEM_DISABLE_NVLS=1). `beside`: not "
    "the same step, timed to be subtracted: `nothing sent` (async) is the step on each card's local shapes, every "
    "collective replaced by a copy of what it would bring, and `alone` (fsdp) that of one card without fully_shard; "
    "`exposed`: a step's median less that; `hidden`: the part of the exposed time that async tensor parallel takes off; "
    "`products`: the step's products timed one by one, cold L2, times how often the step has them; `collectives`: NCCL's "
    "kernels in a profiled step, waiting included"
)


def errors(mesh: DeviceMesh, arm: Arm, y: torch.Tensor, truth: Truth) -> dict[str, float]:
    """Return ||x - x64|| / ||x64|| of the output over all ranks, of the whole gradient, and of the worst parameter's gradient."""
    norms = torch.stack([(y.double() - truth.output).square().sum(), truth.output.square().sum()])
    dist.all_reduce(norms)
    wrong, size, worst = 0.0, 0.0, 0.0
    for name, p in arm.module.named_parameters():
        wanted = truth.gradient[name]
        a, b = float((whole(p.grad).double() - wanted).square().sum()), float(wanted.square().sum())
        wrong, size, worst = wrong + a, size + b, max(worst, (a / b) ** 0.5)
    found = {"output": float((norms[0] / norms[1]).sqrt()), "gradient": (wrong / size) ** 0.5, "worst parameter": worst}
    return {name: scaling.agreed(mesh, error) for name, error in found.items()}


def free(mesh: DeviceMesh) -> None:
    gc.collect()
    if mesh.device_type == "cuda":
        torch.cuda.empty_cache()


def measured(mesh: DeviceMesh, name: str, program: Program) -> dict[str, Any]:
    """Return a row: each arm's first step is judged and its products are counted, then all arms are timed in turn."""
    results: dict[str, dict[str, Any]] = {}
    unavailable = dict(program.unavailable)
    for which, arm in list(program.arms.items()):
        failed, before = None, mm32.stats()
        try:
            with arm.within():
                y = arm.step()
        except Exception as error:
            failed = reason(error)
        if (why := agree(mesh, failed)) is not None:
            unavailable[which] = why
            del program.arms[which]
            continue
        results[which] = {}
        if arm.on and not isinstance(arm, Captured):  # a replayed step does not call mm32
            after = mm32.stats()
            results[which]["kernels"] = dict(Counter(after.kernels) - Counter(before.kernels))
            results[which]["left to torch"] = dict(Counter(after.reasons) - Counter(before.reasons))
            results[which]["tiers"] = dict(Counter(after.tiers) - Counter(before.tiers))
        if which not in program.unjudged:
            results[which]["errors"] = errors(mesh, arm, y, program.truth)
            results[which]["normwise"] = results[which]["errors"]["gradient"]
    program.truth = Truth(torch.empty(0), {})
    free(mesh)
    steps = {which: arm.step for which, arm in program.arms.items()}
    budget = BUDGET if mesh.device_type == "cuda" else 0.0
    times = scaling.timed(mesh, steps, budget, within=lambda which: program.arms[which].within())
    slowest = {which: each.amax(0).tolist() for which, each in times.items()}
    for which, figures in measure.timed(slowest).items():
        results[which] |= figures
    case = {"program": name, "cards": mesh.size()}
    row = {"case": case, "what": program.what, "rounds": len(slowest["torch"]), "results": results}
    row |= {"unavailable": unavailable}
    program.more(row)
    # Arms that do not compute the step are kept apart, so every time among the results has its error.
    row["beside"] = {which: results.pop(which) for which in program.unjudged if which in results}
    return row


def said(row: dict[str, Any]) -> Iterable[str]:
    yield f"{row['case']['program']} on {row['case']['cards']} cards: {row['what']}"
    for which, r in row["results"].items():
        yield (
            f"  {which:24} {r['seconds'] * 1e3:9.3f} ms  torch : this {r['speedup']:.2f} ({r['speedup_low']:.2f}–"
            f"{r['speedup_high']:.2f})  errors against float64: "
            + ", ".join(f"{n} {e:.1e}" for n, e in r["errors"].items())
        )
    for which, r in row["beside"].items():
        yield f"  {which:24} {r['seconds'] * 1e3:9.3f} ms"
    for which, why in row["unavailable"].items():
        yield f"  {which}: {why}"
    for name in ("exposed", "hidden", "saved", "products", "collectives", "fused"):
        if name in row:
            yield f"  {name}: {row[name]}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=PROGRAMS, help=f"of {', '.join(PROGRAMS)}")
    parser.add_argument("--resume", action="store_true", help="only the programs that the record has not got")
    parser.add_argument(
        "--small", action="store_true", help="sizes for a CPU too, to try it; no record but where -o says"
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args(arguments)
    if "WORLD_SIZE" not in os.environ:
        print("benchmarks/parallel_steps.py is started by torchrun, a process for each card", file=sys.stderr)
        return 2
    if options.device == "cpu" and not options.small:
        parser.error("--device cpu is for --small")
    mesh = scaling.start(options.device)
    path = options.output if options.small else scaling.written_to(options, f"parallel-{mesh.size()}")
    environment = record.environment() | {"cards": mesh.size(), "multicast": "off"}
    chosen = options.only or list(PROGRAMS)
    rows = scaling.kept(mesh, path, environment) if options.resume or options.only else []
    if options.resume:
        chosen = [name for name in chosen if name not in {row["case"]["program"] for row in rows}]
    rows = [row for row in rows if row["case"]["program"] not in chosen]
    failed = []
    for name in chosen:
        began, why, row = time.monotonic(), None, None
        try:
            row = measured(mesh, name, PROGRAMS[name](mesh, SMALL if options.small else FULL))
        except Exception as error:
            why = reason(error)
            print(f"{name}, rank {mesh.get_rank()}: {why}", file=sys.stderr, flush=True)
        if agree(mesh, why) is not None:
            failed.append(name)
        elif row is not None:
            rows = sorted([*rows, row], key=lambda row: list(PROGRAMS).index(row["case"]["program"]))
            if mesh.get_rank() == 0:
                print("\n".join(said(row)), flush=True)
                print(f"  [{time.monotonic() - began:.0f} s]", flush=True)
                if path is not None:
                    record.write(path, record.make("parallel", rows, METHOD) | {"environment": environment})
        free(mesh)
    # gloo's threads need Python's lock to release the last collective's tensors. If Python ends before that, torch aborts.
    time.sleep(0.1)
    dist.destroy_process_group()
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
