"""What a program of parallel_steps.py is: its arms, which are ways to run one training step, and its step in float64."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

import mm32

from .models import Stack


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


def captured(mesh: DeviceMesh, arms: dict[str, Arm]) -> tuple[dict[str, Arm], dict[str, str]]:
    """Return the same arms, each in a CUDA graph, and, without CUDA, why there are none."""
    if mesh.device_type != "cuda":
        judged = [which for which in arms if "nothing sent" not in which]
        return {}, {f"{which}{GRAPH}": "CUDA graphs are for CUDA devices" for which in judged}
    made = {}
    for which, arm in arms.items():
        made[f"{which}{GRAPH}"] = Captured(arm.module, arm.x.detach(), arm.grad, arm.on, around=arm.around)
    return made, {}
