"""Calls in a row: several calls of both sides with no seed and no state given in between, each with other data.

A model that keeps something from call to call (running statistics, a cache, a hidden state) is right only if what it carries
over from earlier data is right. A model that draws random numbers has to go on drawing where no seed is set.
"""

from __future__ import annotations

import math
import random
import secrets
import time
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..exchange.wire import bytes_of, leaves
from ..judging.bounds import U32, Errors, Truth
from ..judging.judge import Judgement, judge, same_bits
from ..report import judgement_record

if TYPE_CHECKING:
    from ..compare import Comparison

ASKS = "calls in a row, each with other data: state moves on at each, and so do random numbers"
FEW_CALLS = 3  # calls in a row, where one takes SHORT_SECONDS or more
ALL_CALLS = 8  # where one takes less than SHORT_SECONDS
SHORT_SECONDS = 0.1
# Where one takes less than BRIEF_SECONDS, their number is drawn from this range: a candidate that counts calls does not know
# how many are judged.
MANY_CALLS = 65, 96
BRIEF_SECONDS = 0.01
JUDGED_SHARE = 0.25  # the share of the calls beyond ALL_CALLS that are judged, at random; the last is judged too
LONGEST_SECONDS = 4.0  # a row of calls ends after so many seconds
INPUT_SETS = 4  # sets of inputs that calls are drawn from
MOST_BYTES = 64 << 20  # bytes of all these sets; if there are more, inputs are made anew for each call
COMPARED_CALLS = 5  # calls whose outputs are compared with each other
# Both are logarithms of ratios: by how much the distances between the reference's outputs may differ if they are to tell
# something, and how much further apart or nearer the candidate's outputs may be. Numbers that are negated are 1.41 times as
# far apart as new ones; where none are drawn, 0.71 times.
DISTANCE_SPREAD = 0.15
DISTANCE_SHIFT = 0.1


def run(comparison: Comparison) -> tuple[dict[str, Any], str]:
    """Return the probe's record without its name, and what is wrong; empty if nothing is.

    Outputs and buffers have to be what the reference's own calls give; after several calls, errors may be as many times as
    large. That holds for random numbers too if both sides have left their generators in the same state after the first call.
    How many numbers a kernel takes from a generator is its own affair: if the states differ, the outputs of several calls on
    the same data only have to be as far from each other as the reference's are.
    """
    seed = secrets.randbelow(2**31)  # the candidate has kept nothing under this one
    alike = _first_call(comparison, seed)
    if comparison.report.problem["draws"] and not alike:
        said = _moves_on(comparison, seed)
        record: dict[str, Any] = {"status": "different" if said else "same", "reason": said}
    else:
        record, said = _row(comparison, seed)
    comparison.inputs = comparison.own_inputs(comparison.session.seed)
    return record, said


def _first_call(comparison: Comparison, seed: int) -> bool:
    """Whether both sides leave their generators in the same state after one call on the same data under one seed."""
    comparison.inputs = comparison.own_inputs(comparison.session.seed)
    comparison.give(comparison.inputs)
    comparison.forward(seed)
    reply = comparison.reference.ask("generators")
    comparison.output(seed)
    theirs = comparison.candidate.ask("generators").header.get("generators")
    return bool(theirs == reply.header["generators"])


def _row(comparison: Comparison, seed: int) -> tuple[dict[str, Any], str]:
    chance = random.SystemRandom()
    noise = [truth.noise for truth in comparison.truth.of(seed, comparison.right)]
    state = comparison.truth.state
    seconds = comparison.reference_seconds
    count = (
        FEW_CALLS
        if seconds >= SHORT_SECONDS
        else ALL_CALLS
        if seconds >= BRIEF_SECONDS
        else chance.randint(*MANY_CALLS)
    )
    # Not next to the trials' seeds, which the candidate's process is told.
    first = secrets.randbelow(2**31)
    small = INPUT_SETS * bytes_of(comparison.inputs) <= MOST_BYTES
    data = [comparison.own_inputs(first + number) if small else None for number in range(INPUT_SETS)]
    begin, last, worst = time.monotonic(), -1, Judgement()
    for number in range(count):
        late = time.monotonic() - begin > LONGEST_SECONDS
        last = chance.choice([i for i in range(INPUT_SETS) if i != last])
        if small:
            comparison.reference.ask("set_inputs", data[last], names=comparison.names)
        comparison.give(data[last] if small else comparison.own_inputs(first + last))
        comparison.right = comparison.reference.ask("forward", seed=seed, on=number > 0).value
        left = comparison.reference.ask("get_state").value
        got = comparison.output(seed, on=number > 0)
        ends = number + 1 == count or (late and number + 1 >= FEW_CALLS)
        if number < ALL_CALLS or ends or chance.random() < JUDGED_SHARE:
            moved = max((apart / norm for name, apart in state.items() if (norm := _norm(left.get(name)))), default=0.0)
            truths = [
                Truth(
                    path,
                    leaf,
                    k=comparison.truth.k,
                    working=comparison.truth.working,
                    noise=_later(one, number, moved) if one else None,
                )
                for (path, leaf), one in zip(leaves(comparison.right), noise, strict=True)
            ]
            result = judge(got, truths)
            comparison.reference.ask("compared")
            worst = result if not result.same or number == 0 else worst
            said = result.reason
            if not result.same:
                said = comparison.judge_output(got, truths, "probe in a row", result).reason
            elif comparison.report.problem["changes"]:
                said = comparison.compare_state(left, {name: (1 + number) * apart for name, apart in state.items()})
            if said:
                said = f"call {number + 1} in a row: {said}"
                return {**judgement_record(result), "status": "different", "reason": said}, said
        if ends:
            break
    return {**judgement_record(worst), "status": "same", "reason": ""}, ""


def _later(first: Errors, number: int, moved: float) -> Errors:
    """Return how far rounding may move an output after `number` calls, where it moves the first output by `first`, and the
    state by `moved` of its size at each call: an entry that is looked up in a table has no error before the table moves."""
    return Errors(
        (1 + number) * first.normwise + number * moved, (1 + number) * first.componentwise + number * moved / U32
    )


def _norm(t: Any) -> float:
    return float(torch.linalg.vector_norm(t.double())) if isinstance(t, Tensor) and t.is_floating_point() else 0.0


def _moves_on(comparison: Comparison, seed: int) -> str:
    """Return how the random numbers of successive calls on the same data depend on each other; empty if they do not seem to."""
    theirs = [comparison.output(seed, on=number > 0) for number in range(COMPARED_CALLS)]
    own = [comparison.reference.ask("forward", seed=seed, on=number > 0).value for number in range(COMPARED_CALLS)]
    pairs = [(i, j) for j in range(COMPARED_CALLS) for i in range(j)]
    if any(same_bits(theirs[i], theirs[j]) and not same_bits(own[i], own[j]) for i, j in pairs):
        return "it draws the same random numbers again at a later call under one seed"
    right, found = ([_distance(outputs[i], outputs[j]) for i, j in pairs] for outputs in (own, theirs))
    return dependent(right, found)


def dependent(right: list[float], found: list[float]) -> str:
    """Return how the distances between a candidate's outputs (`found`) differ from those between the reference's own
    (`right`); empty if they do not, or where the reference's differ too much to tell."""
    if not all(0 < x < math.inf for x in right):
        return ""
    low, high = min(right), max(right)
    apart = math.log(high / low)
    if not apart <= DISTANCE_SPREAD:
        return ""
    allowed = math.exp(apart + DISTANCE_SHIFT)
    if all(low / allowed <= x <= high * allowed for x in found):
        return ""
    return (
        "the random numbers that its calls under one seed draw depend on each other: two of its outputs are "
        f"{min(found):.3g} to {max(found):.3g} apart, two of the reference's {low:.3g} to {high:.3g}"
    )


def _distance(a: Any, b: Any) -> float:
    """Return the norm of the difference of two outputs' tensors of floating point; infinite where their shapes differ."""
    total = 0.0
    one, other = leaves(a), leaves(b)
    if len(one) != len(other):
        return math.inf
    for (_, x), (_, y) in zip(one, other, strict=True):
        if isinstance(x, Tensor) and isinstance(y, Tensor) and x.is_floating_point():
            if x.shape != y.shape:
                return math.inf
            total += float(torch.linalg.vector_norm(x.double() - y.double())) ** 2
    return math.sqrt(total)
