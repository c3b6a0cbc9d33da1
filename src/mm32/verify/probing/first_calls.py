"""Another first call: a candidate that is made anew answers small data first, and then the script's own.

What a candidate keeps of its first call (a length, a scale, which entries are zero) is right for later calls only if it
holds for all data alike. The data of all trials and of all timed calls are of one kind, so what was kept of one of them
often holds for the others. In small data, each integer is the least of its tensor, and numbers are a 64th as large. Where
the reference does not take these, the first call gets data of a probe that the candidate has passed.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils import _pytree as pytree

from ..inputs.regrouped import least
from ..judging.judge import judge
from ..judging.widened import in_order
from ..processes.channel import Failure
from ..report import judgement_record
from ..text import one_line
from .passed import PassedProbe

if TYPE_CHECKING:
    from ..compare import Comparison

ASKS = "made anew, small data at the first call, then the script's own"
ODD = ("a NaN", "an Inf")  # probes on whose data a candidate may raise
SMALLER = 2.0**-6


def small(inputs: Any) -> Any:
    """Return small data in place of these."""
    values, tree = pytree.tree_flatten(inputs)
    made = [t * SMALLER if isinstance(t, Tensor) and t.is_floating_point() else t for t in least(values)]
    return pytree.tree_unflatten(made, tree)


def run(comparison: Comparison, passed: Sequence[PassedProbe]) -> tuple[dict[str, Any], str] | None:
    """Return the probe's record without its name, and what is wrong; None where there are no data for a first call."""
    seed = secrets.randbelow(2**31)
    first, of = _first(comparison, passed, seed)
    if first is None:
        return None
    comparison.inputs = comparison.own_inputs(seed)
    comparison.forward(seed)
    truths = comparison.truth.of(seed, comparison.right)
    if why_not := comparison.own_error(truths):
        return {"status": "skipped", "reason": why_not}, ""
    comparison.candidate.ask("build", comparison.build, seed=comparison.session.seed)
    comparison.give(first)
    try:
        comparison.output(seed, first=True)
    except Failure as failure:
        if failure.kind != "raised":
            raise
        said = f"at its first call, on {of}, it raises: {one_line(failure.message, 160)}"
        return {"status": "different", "reason": said}, said
    comparison.give(comparison.inputs)
    got = comparison.output(seed)
    result = in_order(comparison.truth, judge(got, truths), truths, got, seed)
    said = ""
    if not result.same:
        said = comparison.judge_output(got, truths, "probe another first call", result).reason
        said = f"after a first call on {of}: {said}"
    return {**judgement_record(result), "status": "different" if said else "same", "reason": said}, said


def _first(comparison: Comparison, passed: Sequence[PassedProbe], seed: int) -> tuple[Any, str]:
    """Return data for the first call, and what they are, in words; None where there are none."""
    made = small(comparison.own_inputs(seed))
    comparison.inputs = made
    try:
        comparison.reference.ask("set_inputs", made, names=comparison.names)
        comparison.forward(seed)
    except Failure as failure:
        if failure.kind != "raised":
            raise
    else:
        return made, "small data"
    if not (usual := [one for one in passed if not one.name.startswith(ODD)]):
        return None, ""
    one = random.SystemRandom().choice(usual)
    return one.inputs, f"data of the probe {one.name!r}"
