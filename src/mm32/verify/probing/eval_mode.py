"""Whether `eval()` makes the reference another function, as dropout and batch norm do: no candidate is compared there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..judging.selftest import substitute
from ..processes.channel import Failure
from .later_parameters import apart

if TYPE_CHECKING:
    from ..compare import Comparison

SAYS = "eval(), in which the reference answers otherwise"
# The least distance between the reference's answers in training and in evaluation, as a share of the answer, that is not
# rounding: some modules compute the same in another way, and some threads add up in another order from call to call.
SEEN = 2.0**-10


def left_out(comparison: Comparison) -> list[str]:
    """Return what the verdict's line says about this: nothing where eval() changes nothing.

    Most kernels are written for the calls that a script makes, in training. So no candidate is called in evaluation, and the
    line says so of all.
    """
    if comparison.session.kernel is not None:
        return []
    seed = comparison.session.seed
    comparison.inputs = comparison.own_inputs(seed)
    comparison.forward(seed)
    before = comparison.right
    try:
        comparison.reference.ask("evaluate")
        comparison.forward(seed)
        away, size = apart(comparison.right, before), apart(before, substitute(before, torch.zeros_like))
        return [SAYS] if away > SEEN * size else []
    except Failure as failure:
        if failure.kind != "raised":
            raise
        return [SAYS]
    finally:
        # Made anew: a model's own train() may do more than to set the mode back.
        comparison.reference.ask("build", comparison.build, seed=seed)
