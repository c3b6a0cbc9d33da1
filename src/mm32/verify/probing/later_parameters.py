"""Whether a candidate still looks at its parameters after its first call.

Weights that are packed once are fair (docs/defence.md), and no probe refuses them: each makes the model anew for other
parameters. But who goes on to train the model, or loads a checkpoint into it, has to know. So one model that has been called
gets other parameters in place, as an optimizer or load_state_dict gives them, and is called again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..judging.judge import judge
from ..processes.channel import Failure

if TYPE_CHECKING:
    from ..compare import Comparison

SAYS = "parameters that change after a call, which it does not look at again"


def left_out(comparison: Comparison) -> list[str]:
    """What the verdict's line says of it: nothing where the candidate's answer follows its parameters, or cannot be told."""
    if not comparison.copied or comparison.session.kernel is not None or not comparison.build["state"]:
        return []
    seed = comparison.session.seed
    comparison.inputs = comparison.own_inputs(seed)
    comparison.forward(seed)
    usual = comparison.inputs
    if comparison.vary("parameters", seed) is not None and comparison.vary("parameters of one sign", seed) is not None:
        comparison.restore_parameters()
        return []
    try:
        comparison.give(usual)
        comparison.output(seed)  # by its own parameters
        again = {"init": comparison.build["init"], "state": comparison.varied["state"]}
        comparison.candidate.ask("build", again, seed=seed, again=True)
        comparison.forward(seed)
        truths = comparison.truth.of(seed, comparison.right)
        if comparison.own_error(truths):
            return []
        return [] if judge(comparison.output(seed), truths).same else [SAYS]
    except Failure as failure:
        if failure.kind != "raised":
            raise
        return []
    finally:
        comparison.restore_parameters()
        comparison.build_candidate(comparison.build)
