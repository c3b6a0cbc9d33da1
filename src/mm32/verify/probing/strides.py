"""The same values in another order of memory: inputs whose last two axes are exchanged there, as a transposed view has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils import _pytree as pytree

from ..exchange.wire import leaves
from ..judging.judge import judge
from ..processes.channel import Failure
from ..report import judgement_record
from ..text import one_line

if TYPE_CHECKING:
    from ..compare import Comparison

ASKS = "the same values, as transposed views have them in memory"
RAISES = "inputs of other strides, on which it raises"
ASSUMES = "inputs of other strides, which it takes for contiguous"


def turned(value: Any) -> Any:
    """Return a tensor of the same values whose last two axes have exchanged their places in memory; the value itself where
    that does not apply."""
    if not isinstance(value, Tensor) or value.dim() < 2 or min(value.shape[-2:]) < 2 or not value.is_contiguous():
        return value
    return value.transpose(-1, -2).contiguous().transpose(-1, -2)


def run(comparison: Comparison) -> tuple[dict[str, Any], str] | None:
    """Return the probe's record without its name, and what is wrong, which is nothing; None where no input could be turned.

    Many kernels take contiguous inputs alone, as `get_inputs` makes them, and say so or not. So a candidate that raises or
    is wrong here is not refused: the probe is left out, and the verdict's line says so.
    """
    seed = comparison.session.seed
    own = comparison.own_inputs(seed)
    inputs = pytree.tree_map(turned, own)
    if all(a is b for (_, a), (_, b) in zip(leaves(own), leaves(inputs), strict=True)):
        comparison.inputs = own
        return None
    comparison.inputs = inputs
    del own
    try:
        return _run(comparison, inputs, seed)
    finally:
        comparison.inputs = comparison.own_inputs(seed)


def _run(comparison: Comparison, inputs: Any, seed: int) -> tuple[dict[str, Any], str]:
    try:
        comparison.reference.ask("set_inputs", inputs, names=comparison.names)
        comparison.forward(seed)
    except Failure as failure:
        if failure.kind != "raised":
            raise
        return {"status": "skipped", "reason": f"the reference fails on it: {one_line(failure.message, 160)}"}, ""
    truths = comparison.truth.of(seed, comparison.right)
    if why_not := comparison.own_error(truths):
        return {"status": "skipped", "reason": why_not}, ""
    comparison.give(inputs)
    try:
        got = comparison.output(seed)
    except Failure as failure:
        if failure.kind != "raised":
            raise
        comparison.report.left_out.append(RAISES)
        return {"status": "skipped", "reason": f"the candidate raises on it: {one_line(failure.message, 160)}"}, ""
    result = judge(got, truths)
    if not result.same:
        comparison.report.left_out.append(ASSUMES)
        return {"status": "skipped", "reason": f"the candidate takes memory for contiguous: {result.reason}"}, ""
    return {"status": "same", **judgement_record(result)}, ""
