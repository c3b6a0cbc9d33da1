"""Could this check have failed? Wrong outputs, made from the right one, that the judge must reject.

This is part of every verification, with the same judge and bounds as for the candidate. A check that accepts zeros (because
NaN passes its comparison, or its tolerance is larger than the answer) proves nothing, and the tool then gives no verdict.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..exchange.named import like
from ..exchange.wire import leaves
from . import pieces
from .bounds import FLIPS_FACTOR, ROUNDOFF, U32, Truth
from .judge import Judgement, judge, same_bits


@dataclass
class Check:
    """One wrong output, and whether the judge rejected it; or the reference's own output, and whether the judge accepted it."""

    name: str
    caught: bool
    how: str


def substitute(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return `tree` with every tensor and every float changed."""
    if isinstance(tree, dict):
        return {key: substitute(item, change) for key, item in tree.items()}
    if isinstance(tree, (list, tuple)):
        return like(tree, [substitute(item, change) for item in tree])
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, float):
        return change(torch.tensor([tree])).item()
    return tree


def first_tensor(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return `tree` with only its first tensor that is not empty changed."""
    done: list[bool] = []

    def once(t: Tensor) -> Tensor:
        if done or t.numel() == 0:
            return t
        done.append(True)
        return change(t)

    return substitute(tree, once)


def _one_wrong(t: Tensor, count: int = 1, u: float = 0.0, loose: Tensor | None = None) -> Tensor:
    """Return `t` with its largest entry that is not `loose` off by one per cent.

    It is off by more where the unit roundoff of the tensor's type, or `u`, that of the type the model computes in, is coarser
    than fp32's. Of integers, the first `count` are off by one; of booleans, the first `count` are inverted.
    """
    out = t.clone().contiguous()
    flat = out.reshape(-1)
    if t.dtype == torch.bool:
        flat[:count] = ~flat[:count]
        return out
    if not t.is_floating_point() and not t.is_complex():
        flat[:count] += 1
        return out
    at = pieces.largest(flat if loose is None else torch.where(loose.to(flat.device).reshape(-1) > 0, 0, flat))
    step = _of_coarsest(OFF, t, u)
    flat[at] = flat[at] * (1 + step) if bool(torch.isfinite(flat[at])) and bool(flat[at] != 0) else 1.0
    return out


def _one_nan(t: Tensor) -> Tensor:
    out = t.clone().contiguous()
    flat = out.reshape(-1)
    flat[int(torch.isfinite(flat).to(torch.uint8).argmax())] = float("nan")
    return out


def _constant(t: Tensor) -> Tensor:
    if t.is_complex() or t.dtype == torch.bool:
        return torch.ones_like(t)

    def of(piece: Tensor) -> tuple[float, int]:
        finite = piece[torch.isfinite(piece)]
        return float(finite.sum(dtype=torch.float64)), finite.numel()

    sums = pieces.over(of, t)
    count = sum(n for _, n in sums)
    return torch.full_like(t, math.fsum(total for total, _ in sums) / count if count else 1.0)


STALE = "the previous inputs' output"  # the name of a check: it is passed where all inputs have the same output
# By type, of the tensor or of what the model computes in: the part by which one entry is off, and how many bits are left.
OFF = {torch.float64: 0.01, torch.float32: 0.01, torch.float16: 0.1, torch.bfloat16: 0.25}
BITS = {torch.float64: 20, torch.float32: 8, torch.float16: 6, torch.bfloat16: 4}


def _of_coarsest(values: dict[torch.dtype, Any], t: Tensor, u: float) -> Any:
    """Return the value of the tensor's type, or of the coarsest type of unit roundoff up to `u` if that is coarser."""
    own = t.dtype if t.dtype in values else torch.float32
    coarser = [dtype for dtype in values if ROUNDOFF[own] < ROUNDOFF[dtype] <= u]
    return values[max(coarser, key=ROUNDOFF.__getitem__, default=own)]


def _rounded(t: Tensor, u: float = 0.0) -> Tensor:
    """Return `t` with significands rounded to a few bits: 8 of fp32's 24, fewer if its type, or the model's `u`, is coarser."""
    if t.dtype not in BITS:
        return _one_wrong(t, u=u)
    scale = 2.0 ** _of_coarsest(BITS, t, u)

    def of(piece: Tensor) -> Tensor:
        mantissa, exponent = torch.frexp(piece.double())
        rounded = torch.ldexp(torch.round(mantissa * scale) / scale, exponent)
        return torch.where(piece.isfinite(), rounded, piece.double())

    return pieces.changed(of, t)


def run(
    cases: Sequence[tuple[Any, Sequence[Truth]]],
    stale: Any = None,
    made: Sequence[tuple[str, Any, Sequence[Truth]]] = (),
    judge: Callable[[Any, Sequence[Truth]], Judgement] = judge,
) -> list[Check]:
    """Judge wrong outputs, and the reference's own, which must pass.

    `cases`: the reference's output for several inputs, each with its truths. Since the candidate has to pass on all of them, a
    wrong output counts as caught if one of the cases catches it: an answer of one number may be right by chance for one of them.
    A wrong output that is a kept answer (a constant, `stale`, or the output of another case) is the same for all cases. `made`:
    outputs that the reference's process computed wrongly on purpose, each with the truth for its inputs; those of one name are
    one check.
    """
    outcomes = [judge(right, truths) for right, truths in cases]
    failed = next((one for one in outcomes if not one.same), None)
    checks = [Check("the reference's own output passes", failed is None, failed.reason if failed else "same")]
    first, truths = cases[0]
    flips = max((truth.flips for truth in truths), default=0)
    working = max((truth.working for truth in truths), default=0.0)  # under autocast, coarser than the outputs' types

    def loose(right: Any) -> Tensor | None:
        against = next(against for other, against in cases if other is right)
        return next((truth.loose for truth in against if isinstance(truth.reference, Tensor)), None)

    names: list[tuple[str, Callable[[Any], Any]]] = [
        ("zeros", lambda right: substitute(right, torch.zeros_like)),
        ("a constant", lambda right: substitute(first, _constant)),
        (STALE, lambda right: first if stale is None else stale),
        (
            "one entry off by 1 %" if not flips else f"{FLIPS_FACTOR * flips + 1} entries changed",
            lambda right: first_tensor(right, lambda t: _one_wrong(t, FLIPS_FACTOR * flips + 1, working, loose(right))),
        ),
    ]
    types = [leaf.dtype for _, leaf in leaves(first) if isinstance(leaf, Tensor)]
    if {dtype in ROUNDOFF and max(ROUNDOFF[dtype], working) > U32 for dtype in types} == {True}:
        names[3] = ("one entry off by 10 %", names[3][1])
    floats = all(not isinstance(leaf, Tensor) or leaf.is_floating_point() for _, leaf in leaves(first))
    if floats:
        names.append(("one NaN", lambda right: first_tensor(right, _one_nan)))
    for name, change in names:
        checks.append(_check(name, (judge(change(right), against) for right, against in cases)))
    if floats and not any(name == "half of K" for name, *_ in made):
        rounded = ((substitute(right, lambda t: _rounded(t, working)), right, against) for right, against in cases)
        moved = (judge(wrong, against) for wrong, right, against in rounded if not same_bits(wrong, right))
        once = next(moved, None)
        if once is not None:  # signs, counts and masks have few bits: rounding leaves them right
            checks.append(_check("rounded to fewer bits", itertools.chain([once], moved)))
    for name in dict.fromkeys(name for name, *_ in made):
        checks.append(_check(name, (judge(output, against) for other, output, against in made if other == name)))
    return checks


def _check(name: str, outcomes: Iterable[Judgement]) -> Check:
    """Return a check that is caught if one of the outcomes is a rejection; the outcomes after it are not computed."""
    caught = next((outcome for outcome in outcomes if not outcome.same), None)
    return Check(name, caught is not None, caught.reason if caught else "passed as the same")
