"""The program "fsdp" of parallel_steps.py: blocks under fully_shard, beside the same blocks on one card without it."""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from statistics import median
from typing import Any

import scaling
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._python_dispatch import TorchDispatchMode

import mm32

from .arms import Arm, Program, Truth, agree, drawn, float64_step, made, reason
from .models import Sizes, Stack, described


class Products(TorchDispatchMode):
    """Counts the products that torch is asked for, by operator, shapes and strides, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: Counter[tuple] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default):
            self.forms[function, tuple((tuple(t.shape), t.stride()) for t in args)] += 1
        return function(*args, **(kwargs or {}))


def products_alone(mesh: DeviceMesh, forms: Counter[tuple]) -> dict[str, Any]:
    """Return the seconds of a step's products, by torch and by mm32: each form timed by itself, by the slowest card's median."""
    total = {"torch": 0.0, "mm32": 0.0}
    for (function, operands), count in forms.items():
        tensors = [torch.empty_strided(*of, device=mesh.device_type).normal_() for of in operands]
        calls = dict.fromkeys(total, lambda f=function, t=tensors: f(*t))
        times = scaling.timed(
            mesh, calls, 0.2, within=lambda which: mm32.enabled() if which == "mm32" else contextlib.nullcontext()
        )
        for which in total:
            total[which] += count * max(median(card) for card in times[which].tolist())
    return {"forms": len(forms), "calls": sum(forms.values()), "seconds": total}


def collectives(mesh: DeviceMesh, arm: Arm) -> dict[str, Any]:
    """Return the time of a step's NCCL kernels on the slowest card, waiting for other cards included, and their number."""
    if mesh.device_type != "cuda":
        return {"failed": "NCCL is for CUDA devices"}
    found, failed = (0.0, 0), None
    with arm.within():
        arm.step()
        dist.barrier()
        try:
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                arm.step()
                torch.cuda.synchronize()
            kernels = [e for e in profile.events() if e.name.startswith("ncclDevKernel")]
            found = sum(e.time_range.elapsed_us() for e in kernels) * 1e-6, len(kernels)
        except Exception as error:
            failed = reason(error)
    if (why := agree(mesh, failed)) is not None:
        return {"failed": why}
    return {"seconds": scaling.agreed(mesh, found[0]), "kernels": int(scaling.agreed(mesh, found[1]))}


def fsdp(mesh: DeviceMesh, sizes: Sizes) -> Program:
    from torch.distributed.fsdp import fully_shard

    plain = made(mesh, lambda: Stack(sizes, bias=True))
    x, grad = drawn(mesh, sizes.batch * sizes.length, sizes.embedding, 1 + mesh.get_local_rank())
    output, gradient = float64_step(plain, x, grad)
    for t in gradient.values():  # fully_shard averages over the ranks
        dist.all_reduce(t.div_(mesh.size()))
    arms = {}
    for which in ("torch", "mm32", "mm32.nn"):
        module = copy.deepcopy(plain)
        if which == "mm32.nn":
            mm32.replace_linear(module)
        for block in module.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(module, mesh=mesh)
        arms[which] = Arm(module, x, grad, which == "mm32")
    alone = copy.deepcopy(plain)
    for which in ("torch", "mm32"):
        arms[f"{which} alone"] = Arm(alone, x, grad, which == "mm32")
    program = Program(
        f"fully_shard of each of {described(sizes, each=True)}, eager: forward and backward",
        arms,
        Truth(output, gradient),
        unjudged=("torch alone", "mm32 alone"),
    )

    def more(row: dict[str, Any]) -> None:
        results = row["results"]
        with Products() as counted:
            arms["torch alone"].step()
        row["products"] = products_alone(mesh, counted.forms)
        of_products, steps = row["products"]["seconds"], {which: r["seconds"] for which, r in results.items()}
        row["saved"] = {
            "products": of_products["torch"] - of_products["mm32"],
            "step": steps["torch"] - steps["mm32"],
            "step alone": steps["torch alone"] - steps["mm32 alone"],
        }
        row["exposed"] = {by: steps[by] - steps[f"{by} alone"] for by in ("torch", "mm32")}
        row["collectives"] = {which: collectives(mesh, arms[which]) for which in ("torch", "mm32")}

    program.more = more
    return program
