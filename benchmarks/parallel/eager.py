"""Eager tensor parallel programs of parallel_steps.py: an MLP, and blocks of a GPT-2."""

from __future__ import annotations

import copy

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

import mm32

from .arms import Arm, Program, Truth, captured, drawn, float64_step, made, mine
from .models import MLP, Sizes, Stack, described, tensor_parallel


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


def blocks(mesh: DeviceMesh, sizes: Sizes) -> Program:
    plain = made(mesh, lambda: Stack(sizes, bias=True))
    arms, truth = eager(mesh, plain, sizes.batch * sizes.length, sizes.embedding, adam=False)
    graphs, unavailable = captured(mesh, arms)
    what = f"tensor parallel, {described(sizes)}, eager: forward and backward"
    return Program(what, arms | graphs, truth, unavailable=unavailable)
