"""Whether a candidate leaves a model's buffers as the reference does."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .bounds import NOISE_FACTOR, ROUNDOFF, U32
from .judge import shape_of

# How far a buffer may be from the reference's, if this is more than NOISE_FACTOR times what a perturbed float64 run allows:
# STATE_PART roundings of the change that the call makes (without such a run, this part STATE of the change), plus STATE_ROUNDING
# roundings of the buffer itself.
STATE_PART, STATE, STATE_ROUNDING = 64.0, 2.0**-13, 8.0
# Entries of a buffer count as left as they were if the reference's call changes them by more than STALE_CHANGE of themselves.
# At least LEAST_STALE of them, and this part of all that it changes, are wrong.
STALE_CHANGE, LEAST_STALE, STALE_PART = 2.0**-10, 4, 1 / 16


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
        said = _floats(got, right, found, noise.get(name), max(working, ROUNDOFF.get(right.dtype, U32)))
        if said:
            return f"after a call its buffer {name!r} is not as the reference leaves it: {said}"
    return ""


def _floats(got: Tensor, right: Tensor, found: Tensor, noise: float | None, u: float) -> str:
    """Return how a buffer of floats, `got`, differs from `right`, which the reference's call has made of `found`; empty if not.

    NaN and Inf have to be where the reference leaves them, and of the other entries the norms are compared. A few entries may be
    all of a norm, so entries that the candidate leaves as they were are also counted."""
    got, right, found = (t.double().reshape(-1) for t in (got, right, found))
    odd = ~(got.isfinite() & right.isfinite())
    wrong = odd & ~((got == right) | (got.isnan() & right.isnan()))
    if bool(wrong.any()):
        at = int(wrong.to(torch.uint8).argmax())
        return f"its entry {at} is {float(got[at]):.3g}, the reference's is {float(right[at]):.3g}"
    zero = torch.zeros_like(right)
    changes = torch.where(odd | ~found.isfinite(), zero, right - found).abs()
    change, size = float(changes.norm()), float(torch.where(odd, zero, right).norm())
    allowed = (STATE if noise is None else STATE_PART * u) * change
    allowed = max(allowed + STATE_ROUNDING * u * size, NOISE_FACTOR * float(noise or 0.0))
    apart = float(torch.where(odd, zero, got - right).norm())
    if not (apart <= allowed):
        return (
            f"off by {apart:.3g}, where the call changes it by {change:.3g} and rounding may move it by {allowed:.3g}"
        )
    if noise is not None and noise >= change / 8:
        return ""
    changed = changes > STALE_CHANGE * torch.maximum(right.abs(), found.abs())
    stale = int((changed & (got == found)).sum())
    if stale >= max(LEAST_STALE, STALE_PART * int(changed.sum())):
        return f"{stale} of the {int(changed.sum())} entries that the call changes are left as they were"
    return ""
