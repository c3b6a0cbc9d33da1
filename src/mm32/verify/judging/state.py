"""Whether a candidate leaves a model's buffers as the reference does."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch import Tensor

from .bounds import NOISE_FACTOR, ROUNDOFF, U32
from .judge import shape_of

# How far a buffer may be from the reference's, if this is more than NOISE_FACTOR times what a perturbed float64 run allows:
# STATE_PART roundings of the change that the call makes (without such a run, this part STATE of the change), plus STATE_ROUNDING
# roundings of the buffer itself.
STATE_PART, STATE, STATE_ROUNDING = 64.0, 2.0**-13, 8.0


def difference(
    names: Sequence[str],
    before: Mapping[str, Tensor],
    left: Mapping[str, Tensor],
    theirs: Any,
    given: Collection[str],
    noise: Mapping[str, float],
    working: float,
) -> str:
    """Return how the buffers `theirs` that a candidate's call left differ from those that the reference has `left`.

    Empty if they do not. `names`: the buffers that calls change. `before`: their values before the call. `given`: the names of
    those that the candidate was given. `noise`: norms by which rounding alone moves them, as it does deep in a network.
    `working`: the coarsest unit roundoff that the reference computes in.
    """
    for name in names:
        found, right = before.get(name), left.get(name)
        if found is None or right is None:
            continue  # it cannot be copied
        if not isinstance(theirs, dict) or name not in theirs:
            if name in given:
                return f"after a call it has no buffer {name!r}, which it was given"
            continue  # a candidate with parameters of its own
        got, found = theirs[name], found.to(right.device)
        if not isinstance(got, Tensor) or (got.shape, got.dtype) != (right.shape, right.dtype):
            return f"after a call its buffer {name!r} is {shape_of(got)}, the reference's is {shape_of(right)}"
        got = got.to(right.device)
        if not right.is_floating_point():
            if not right.equal(got):
                return f"after a call its buffer {name!r} is not as the reference leaves it"
            continue
        change = float((right.double() - found.double()).norm())
        u = max(working, ROUNDOFF.get(right.dtype, U32))
        allowed = (STATE_PART * u if name in noise else STATE) * change
        allowed = max(
            allowed + STATE_ROUNDING * u * float(right.double().norm()), NOISE_FACTOR * float(noise.get(name, 0.0))
        )
        apart = float((got.double() - right.double()).norm())
        if not (apart <= allowed):
            return (
                f"after a call its buffer {name!r} is not as the reference leaves it: off by {apart:.3g}, where the call "
                f"changes it by {change:.3g} and rounding may move it by {allowed:.3g}"
            )
    return ""
