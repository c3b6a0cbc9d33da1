"""Calls with seeds for which the single numbers that a model draws are rare ones.

A layer that is dropped once in a thousand calls is dropped then, or a crop begins at its last place. Candidate and reference
draw the same numbers after the same seed, so the reference's process looks for the seeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..judging.judge import Judgement
from ..report import judgement_record

if TYPE_CHECKING:
    from ..compare import Comparison

ASKS = "seeds of which the single numbers that a call draws are the smallest, or the largest, of thousands"


def run(comparison: Comparison) -> tuple[dict[str, Any], str] | None:
    """Return the probe's record without its name, and what is wrong, empty if nothing is; None where a call does not begin
    by drawing single numbers. Raises Stop and Failure."""
    own = comparison.session.seed
    seeds = comparison.reference.ask("rare_seeds", seed=own).header.get("seeds") or []
    if not seeds:
        return None
    comparison.inputs = comparison.own_inputs(own)
    comparison.give(comparison.inputs)
    result: Judgement | None = None
    why_not = ""
    for seed in seeds:
        comparison.forward(seed)
        truths = comparison.truth.of(seed, comparison.right)
        if why_not := comparison.own_error(truths):
            continue
        result = comparison.judge_output(comparison.output(seed), truths, "probe rare draws")
        comparison.reference.ask("compared")
        if not result.same:
            break
    if result is None:
        return {"status": "skipped", "reason": why_not}, ""
    said = "" if result.same else result.reason
    return {"status": "same" if result.same else "different", **judgement_record(result)}, said
