"""Whether a candidate knows that the model is evaluated: that `eval()` makes dropout and batch norm another function."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..judging.selftest import substitute
from ..processes.channel import Failure
from .later_parameters import apart

if TYPE_CHECKING:
    from ..compare import Comparison

SAYS = "eval(), in which it answers otherwise than the reference"
# How far the candidate's answer may be from the reference's, as a share of the distance between the reference's answers in
# training and in evaluation: rounding is far below that, and what ignores eval() is at 1.
FOLLOWS = 0.25
# The least of that distance, as a share of the answer: a solver's threads may change the last bits from call to call.
SEEN = 2.0**-10


def left_out(comparison: Comparison) -> list[str]:
    """Return what the verdict's line says about this: nothing where eval() changes nothing, or where the candidate follows it.
    Most kernels are written for the calls that a script makes, in training, and are not refused for that."""
    if comparison.session.kernel is not None:
        return []
    seed = comparison.session.seed
    comparison.inputs = comparison.own_inputs(seed)
    comparison.forward(seed)
    before = comparison.right
    sides = (comparison.reference, comparison.candidate)
    try:
        comparison.reference.ask("evaluate", on=True)
        comparison.forward(seed)
        away = apart(comparison.right, before)
        if not away > SEEN * apart(before, substitute(before, torch.zeros_like)):
            return []
        comparison.give(comparison.inputs)
        comparison.candidate.ask("evaluate", on=True)
        off = apart(comparison.output(seed), comparison.right)
        return [SAYS] if off > FOLLOWS * away else []
    except Failure as failure:
        if failure.kind != "raised":
            raise
        return [SAYS] if failure.role == "candidate" else []
    finally:
        for side in sides:
            side.ask("evaluate", on=False)
