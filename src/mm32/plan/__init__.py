"""The planner makes a `Plan` of a `Gemm` and a `Card`. This file only has names. The order in which to read the modules: card,
cost with shares, fma, emulated with packing, direct, blocks, forms, plan, choose; sources has numbers that the kernels fix."""

from mm32.plan import card, cost, emulated, fma
from mm32.plan.card import H200, Card
from mm32.plan.choose import candidates, plan, without_workspace
from mm32.plan.emulated import emulated_kernel, pack, packed_bytes, unsuited
from mm32.plan.forms import forms
from mm32.plan.plan import (
    EMULATED_KERNELS,
    KERNELS,
    PARAMS,
    Blocks,
    Constants,
    Field,
    Launch,
    Plan,
    Step,
    Unplannable,
    Workspace,
    check_kernel,
    unsupported,
)

__all__ = [
    "EMULATED_KERNELS",
    "H200",
    "KERNELS",
    "PARAMS",
    "Blocks",
    "Card",
    "Constants",
    "Field",
    "Launch",
    "Plan",
    "Step",
    "Unplannable",
    "Workspace",
    "candidates",
    "card",
    "check_kernel",
    "cost",
    "emulated",
    "emulated_kernel",
    "fma",
    "forms",
    "pack",
    "packed_bytes",
    "plan",
    "unsuited",
    "unsupported",
    "without_workspace",
]
