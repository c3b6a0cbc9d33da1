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
import contextlib
import copy
import gc
import inspect
import itertools
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._python_dispatch import TorchDispatchMode

import mm32
from mm32.bench import measure, record

sys.path.append(str(Path(__file__).parent))  # for when this file is loaded by its path
import scaling
from parallel_models import FULL, MLP, SMALL, Local, Part, Repeat, Sizes, Stack, tensor_parallel

BUDGET = 5.0  # seconds of a program's rounds; at least scaling.LEAST rounds are timed
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


# ---------------------------------------------------------------------------------------------------------------------
# Steps


class Arm:
    """A way to run a program's step on this rank's part of the data: `x`, and `grad`, the gradient of the result."""

    def __init__(
        self,
        module: nn.Module,
        x: torch.Tensor,
        grad: torch.Tensor,
        on: bool,
        adam: bool = False,
        around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    ) -> None:
        self.module, self.on, self.around = module, on, around
        self.x, self.grad = x.clone().requires_grad_(), grad
        self.optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True) if adam else None

    def step(self) -> torch.Tensor:
        self.x.grad = None
        self.module.zero_grad()
        y = self.module(self.x)
        y.backward(self.grad)
        if self.optimizer is not None:
            self.optimizer.step()
        return y.detach()

    @contextlib.contextmanager
    def within(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if self.on:
                stack.enter_context(mm32.enabled())
            stack.enter_context(self.around())
            yield


GRAPH = ", in a graph"


class Captured(Arm):
    """The step captured once in a CUDA graph, and replayed."""

    graph: torch.cuda.CUDAGraph | None = None

    def step(self) -> torch.Tensor:
        if self.graph is None:
            self.capture()
        assert self.graph is not None
        self.graph.replay()
        for parameter, grad in self.grads:  # other arms may use the same module
            parameter.grad = grad
        return self.y

    def capture(self) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            super().step()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's watchdog queries events meanwhile
            self.y = super().step()
        self.grads = [(p, p.grad) for p in self.module.parameters()]
        self.graph = graph


@dataclass
class Truth:
    """The float64 step: this rank's rows of the output, and the whole gradient of each parameter, by name."""

    output: torch.Tensor
    gradient: dict[str, torch.Tensor]


@dataclass
class Program:
    """A program's arms. Those in `unjudged` do not compute the step; they are timed to be subtracted."""

    what: str
    arms: dict[str, Arm]
    truth: Truth
    unjudged: tuple[str, ...] = ()
    unavailable: dict[str, str] = field(default_factory=dict)
    more: Callable[[dict[str, Any]], None] = lambda row: None
    """Adds to the row what this program is for."""


def whole(t: torch.Tensor) -> torch.Tensor:
    return t.full_tensor() if hasattr(t, "full_tensor") else t


def float64_step(
    module: nn.Module, x: torch.Tensor, grad: torch.Tensor
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the output and gradients of a plain module on all of the data, in float64."""
    module = copy.deepcopy(module).double()
    if isinstance(module, Stack):
        module.recompute = True
    y = module(x.double().requires_grad_())
    y.backward(grad.double())
    return y.detach(), {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


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


def reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:300]


def agree(mesh: DeviceMesh, failed: str | None) -> str | None:
    """Return why the first rank that failed did so; None if none failed.

    If a rank fails in the middle of a collective, the others wait in it until the collective's timeout ends the run.
    """
    every: list[Any] = [None] * mesh.size()
    dist.all_gather_object(every, failed)
    return next((f"rank {rank}: {why}" for rank, why in enumerate(every) if why is not None), None)


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


# ---------------------------------------------------------------------------------------------------------------------
# The programs


def drawn(mesh: DeviceMesh, rows: int, width: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an input, and a gradient of the result, the same on every rank that passes the same seed."""
    generator = torch.Generator(mesh.device_type).manual_seed(seed)
    x, grad = (torch.randn(rows, width, generator=generator, device=mesh.device_type) for _ in range(2))
    return x, grad


def mine(mesh: DeviceMesh, t: torch.Tensor) -> torch.Tensor:
    return t.chunk(mesh.size())[mesh.get_local_rank()].contiguous()


def made(mesh: DeviceMesh, make: Callable[[], nn.Module]) -> nn.Module:
    """Return a module with the same weights on every rank."""
    torch.manual_seed(0)
    with torch.device(mesh.device_type):
        return make()


def eager(mesh: DeviceMesh, plain: nn.Module, rows: int, width: int, adam: bool) -> tuple[dict[str, Arm], Truth]:
    """Return the arms of a tensor parallel module, by torch, by mm32.enabled and by mm32's layers, and the module's truth."""
    x, grad = drawn(mesh, rows, width, 1)
    output, gradient = float64_step(plain, x, grad)
    arms = {}
    for which in ("torch", "mm32", "mm32.nn"):
        module = copy.deepcopy(plain)
        if which == "mm32.nn":
            mm32.replace_linear(module)
        for part in module.blocks if isinstance(module, Stack) else [module]:
            tensor_parallel(part, mesh)
        arms[which] = Arm(module, mine(mesh, x), mine(mesh, grad), which == "mm32", adam)
    return arms, Truth(mine(mesh, output), gradient)


def mlp(mesh: DeviceMesh, sizes: Sizes) -> Program:
    plain = made(mesh, lambda: MLP(sizes.width, sizes.hidden))
    arms, truth = eager(mesh, plain, sizes.rows, sizes.width, adam=True)
    what = (
        f"tensor parallel MLP, width {sizes.width}, hidden {sizes.hidden}, {sizes.rows} rows over all cards, eager: forward, "
        "backward, AdamW (fused)"
    )
    return Program(what, arms, truth)


def described(sizes: Sizes, each: bool = False) -> str:
    of = f"{sizes.batch} × {sizes.length} tokens" + (" for each card" if each else "")
    return f"{sizes.blocks} blocks of a GPT-2, width {sizes.embedding}, {sizes.heads} heads, {of}"


def captured(mesh: DeviceMesh, arms: dict[str, Arm]) -> tuple[dict[str, Arm], dict[str, str]]:
    """Return the same arms, each in a CUDA graph, and, without CUDA, why there are none."""
    if mesh.device_type != "cuda":
        judged = [which for which in arms if "nothing sent" not in which]
        return {}, {f"{which}{GRAPH}": "CUDA graphs are for CUDA devices" for which in judged}
    made = {}
    for which, arm in arms.items():
        made[f"{which}{GRAPH}"] = Captured(arm.module, arm.x.detach(), arm.grad, arm.on, around=arm.around)
    return made, {}


def blocks(mesh: DeviceMesh, sizes: Sizes) -> Program:
    plain = made(mesh, lambda: Stack(sizes, bias=True))
    arms, truth = eager(mesh, plain, sizes.batch * sizes.length, sizes.embedding, adam=False)
    graphs, unavailable = captured(mesh, arms)
    what = f"tensor parallel, {described(sizes)}, eager: forward and backward"
    return Program(what, arms | graphs, truth, unavailable=unavailable)


# -- async tensor parallel


class Fused:
    """Counts the calls of torch's products that are fused with a collective.

    These multiply each chunk by torch.mm. With `packing`, they pack the weight once, by mm32.pack, for all chunks.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    @contextlib.contextmanager
    def around(self, packing: bool) -> Iterator[None]:
        from torch.distributed import _symmetric_memory as symmetric

        names = ("_fused_all_gather_matmul_impl", "_fused_matmul_reduce_scatter_impl")
        before = {name: getattr(symmetric, name) for name in names}
        for name in names:
            setattr(symmetric, name, self._wrapped(before[name], name, packing))
        try:
            yield
        finally:
            for name in names:
                setattr(symmetric, name, before[name])

    def _wrapped(self, function: Callable[..., Any], name: str, packing: bool) -> Callable[..., Any]:
        signature = inspect.signature(function)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[name.removeprefix("_fused_").removesuffix("_impl")] += 1
            bound = signature.bind(*args, **kwargs)
            if packing:
                of = bound.arguments
                multiply, packed = of["mm_out_op"], {}
                for weight in of.get("Bs") or [of["B"]]:
                    operand = mm32.pack(weight)  # on the stream that torch's second stream waits for
                    if operand.reason is None:
                        packed[id(weight)] = operand

                def by_packed(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
                    if id(b) in packed:
                        return mm32.matmul(a, packed[id(b)], out=out)
                    return multiply(a, b, out=out)

                of["mm_out_op"] = by_packed
            return function(*bound.args, **bound.kwargs)

        return call


def no_symmetric_memory(mesh: DeviceMesh) -> str | None:
    """Return why async tensor parallel cannot run here; None if it can. NVLink multicast must be off."""
    if mesh.device_type != "cuda":
        return "torch's symmetric memory is for CUDA devices"
    try:
        from torch._C._autograd import DeviceType
        from torch._C._distributed_c10d import _SymmetricMemory
        from torch._inductor import config
        from torch.distributed import _symmetric_memory as symmetric

        if not hasattr(config, "_micro_pipeline_tp"):
            return f"inductor of torch {torch.__version__} has no _micro_pipeline_tp"
        if _SymmetricMemory.has_multicast_support(DeviceType.CUDA, torch.cuda.current_device()):
            return "NVLink multicast is not off in torch's symmetric memory, though TORCH_SYMM_MEM_DISABLE_MULTICAST=1 is set"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # newer versions need no call
            symmetric.enable_symm_mem_for_group(mesh.get_group().group_name)
        workspace = symmetric.get_symm_mem_workspace(mesh.get_group().group_name, min_size=2**20)
        torch.cuda.synchronize()  # a rank's signal might be lost if the other has yet to clear its memory
        dist.barrier(mesh.get_group())
        workspace.barrier()
    except Exception as error:
        return reason(error)
    return None


def compiled(module: Stack, device: str, pipelined: bool) -> Stack:
    """Compile each block by itself: all share one graph. Other options are another backend to torch.compile, so another graph."""
    for block in module.blocks:
        if device == "cuda":
            block.compile(fullgraph=True, options={"_micro_pipeline_tp": pipelined})
        else:
            block.compile(fullgraph=True, backend="aot_eager")
    return module


def asynchronous(mesh: DeviceMesh, sizes: Sizes) -> Program:
    torch._dynamo.config.cache_size_limit = 64
    plain = made(mesh, lambda: Stack(sizes))
    x, grad = drawn(mesh, sizes.batch * sizes.length, sizes.embedding, 1)
    output, gradient = float64_step(plain, x, grad)
    x, grad, output = (mine(mesh, t) for t in (x, grad, output))
    why = agree(mesh, no_symmetric_memory(mesh))

    def parallel(pipelined: bool) -> Stack:
        module = copy.deepcopy(plain)
        for block in module.blocks:
            tensor_parallel(block, mesh)
        return compiled(module, mesh.device_type, pipelined)

    local = made(mesh, lambda: Stack(sizes, cards=mesh.size()))
    for block in local.blocks:
        block.gather, block.scatter = Local(Repeat, mesh.size()), Local(Part, mesh.size())
    modules = {"": parallel(False), " nothing sent": compiled(local, mesh.device_type, False)}
    if why is None:
        modules |= {" async": parallel(True)}
    fused: dict[str, Fused] = {}
    arms = {}
    for name, module in modules.items():
        arms[f"torch{name}"] = Arm(module, x, grad, False)
        arms[f"mm32{name}"] = Arm(module, x, grad, True)
    waiting = ("torch async", "mm32 async", "mm32 async, packed once")
    if why is None:
        arms[waiting[2]] = Arm(modules[" async"], x, grad, True)
    graphs, unavailable = captured(mesh, arms)
    arms |= graphs
    if why is None:
        for which in (*waiting, *(f"{which}{GRAPH}" for which in waiting)):
            fused[which] = Fused()
            arms[which].around = lambda each=fused[which], packing="packed" in which: each.around(packing)
    else:
        unavailable |= dict.fromkeys(waiting, why)
    program = Program(
        f"tensor parallel, {described(sizes)}, without biases, each block compiled: forward and backward",
        arms,
        Truth(output, gradient),
        unjudged=tuple(which for which in arms if "nothing sent" in which),
        unavailable=unavailable,
    )

    def more(row: dict[str, Any]) -> None:
        seconds = {which: r["seconds"] for which, r in row["results"].items()}
        steps = row["rounds"] + 2  # the judged step and the warm-up are two more
        row["fused"] = {}
        for which, each in fused.items():
            asked = 2 if GRAPH in which else steps  # once before the capture, and once in it
            row["fused"][which] = {name: n // asked for name, n in each.calls.items()}
        for which, calls in row["fused"].items():
            if which in row["results"] and not calls:
                row["unavailable"][which] = (
                    "inductor fused no collective with a product: the step is the one without async"
                )
        row["exposed"], row["hidden"] = {}, {}
        for by, how in itertools.product(("torch", "mm32"), ("", GRAPH)):
            step, nothing = f"{by}{how}", f"{by} nothing sent{how}"
            if {step, nothing} <= seconds.keys():
                row["exposed"][step] = exposed = seconds[step] - seconds[nothing]
                names = [f"{which}{how}" for which in waiting if which.split()[0] == by]
                row["hidden"] |= {
                    which: (seconds[step] - seconds[which]) / exposed
                    for which in names
                    if which in seconds and exposed > 0
                }

    program.more = more
    return program


# -- FSDP2


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


PROGRAMS: dict[str, Callable[[DeviceMesh, Sizes], Program]] = {
    "mlp": mlp,
    "blocks": blocks,
    "async": asynchronous,
    "fsdp": fsdp,
}


# ---------------------------------------------------------------------------------------------------------------------


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
