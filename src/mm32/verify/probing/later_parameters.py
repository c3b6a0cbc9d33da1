"""Whether a candidate still looks at its parameters after its first call.

Packing weights once is fair (docs/defence.md), and no probe refuses it: each makes the model anew for other parameters. But
a user who goes on to train the model, or loads a checkpoint into it, has to know. So one model that has been called gets
other parameters in place, as an optimizer or load_state_dict gives them, and is called again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..exchange.wire import leaves
from ..processes.channel import Failure

if TYPE_CHECKING:
    from ..compare import Comparison

SAYS = "parameters that change after a call, which it does not look at again"
# How far the candidate's answer may be from the reference's answer for the new parameters, as a share of the distance
# between the reference's answers before and after: some of the parameters may be packed, and others looked at. Where the
# answer is farther off, but a candidate that is made anew is nearly as far off too, rounding did it, not packing.
FOLLOWS, ANEW = 2.0**-10, 0.5


def left_out(comparison: Comparison) -> list[str]:
    """Return what the verdict's line says about this: nothing where the candidate's answer follows its parameters, or where
    that cannot be told."""
    if not comparison.copied or comparison.session.kernel is not None or not comparison.build["state"]:
        return []
    seed = comparison.session.seed
    comparison.inputs = usual = comparison.own_inputs(seed)
    comparison.forward(seed)
    before = comparison.right
    try:
        if not _changed(comparison, seed):
            return []
        comparison.give(usual)
        comparison.output(seed)  # with its own parameters
        again = {"init": comparison.build["init"], "state": comparison.varied["state"]}
        comparison.candidate.ask("build", again, seed=seed, again=True)
        comparison.forward(seed)
        got = comparison.output(seed)
        away, off = apart(comparison.right, before), apart(got, comparison.right)
        if not off > FOLLOWS * away > 0:
            return []
        comparison.build_candidate(again)
        comparison.give(comparison.inputs)
        return [SAYS] if apart(comparison.output(seed), comparison.right) < ANEW * off else []
    except Failure as failure:
        if failure.kind != "raised":
            raise
        return []
    finally:
        comparison.restore_parameters()
        comparison.build_candidate(comparison.build)


def _changed(comparison: Comparison, seed: int) -> bool:
    """Give the reference other parameters. Return whether it has an answer for some."""
    for name in ("parameters", "parameters of one sign"):
        if comparison.vary(name, seed) is None:
            return True
        comparison.restore_parameters()  # the reason may have been found only after they were changed
    return False


def apart(some: Any, others: Any) -> float:
    """Return the distance between the numbers of two outputs; 0 where these are not of one kind, or not all finite."""
    total = 0.0
    for (_, a), (_, b) in zip(leaves(some), leaves(others), strict=False):
        if isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and a.is_floating_point():
            difference = a.float() - b.to(a.device).float()
            total += float(torch.linalg.vector_norm(difference, dtype=torch.float64)) ** 2
    return total**0.5 if total < float("inf") else 0.0
