"""The program "async" of parallel_steps.py: compiled blocks with and without async tensor parallel."""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

import mm32

from .arms import GRAPH, Arm, Program, Truth, agree, captured, drawn, float64_step, made, mine, reason
from .models import Local, Part, Repeat, Sizes, Stack, described, tensor_parallel


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
