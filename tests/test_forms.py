"""The list of compiled forms: every launch of a plan lies on its axes, and the covering has every combination."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest

from mm32 import activations
from mm32 import plan as planning
from mm32.plan import H200, KERNELS
from mm32.plan.forms import SOURCES, Axis, Source, covering
from support.plan import SOME, plans, random_gemm


def axis(name: str, count: int) -> Axis:
    return Axis(tuple(((name, value),) for value in range(count)))


def test_the_covering_has_every_combination_of_a_group() -> None:
    a, b, c = axis("A", 4), axis("B", 3), axis("C", 2)
    source = Source(
        "k", "s.cu", ("C", "A", "B"), (a, b, c), ((a, b), (b, c)), lambda form: 1, lambda form: form["A"] != form["B"]
    )
    made = covering(source)
    assert {(f["A"], f["B"]) for f in made} == {(i, j) for i in range(4) for j in range(3) if i != j}
    assert {(f["B"], f["C"]) for f in made} == set(itertools.product(range(3), range(2)))
    assert len(made) == 9, "no more than the larger group has combinations"
    assert source.constants(made[0]) == tuple((name, made[0][name]) for name in "CAB")
    assert source.has((("C", 1), ("A", 3), ("B", 2)))
    for wrong in ((("C", 1), ("A", 2), ("B", 2)), (("C", 2), ("A", 3), ("B", 2)), (("A", 3), ("B", 2), ("C", 1))):
        assert not source.has(wrong)


def test_a_group_may_have_less_than_an_axis() -> None:
    a, b = axis("A", 4), axis("B", 3)
    source = Source("k", "s.cu", ("A", "B"), (a, b), ((a.only((("A", 2),)), b),), lambda form: 1)
    assert sorted((f["A"], f["B"]) for f in covering(source)) == [(2, 0), (2, 1), (2, 2)]
    with pytest.raises(AssertionError):
        a.only((("A", 4),))


@pytest.mark.parametrize("card", SOME, ids=lambda c: c.name)
def test_every_launch_of_a_plan_lies_on_the_axes(card: planning.Card) -> None:
    """A launch has the same names in the same order, with values that the table knows, so that what is checked of the forms holds
    for what runs."""
    rng = random.Random(3)
    for _ in range(300):
        problem = random_gemm(rng)
        made = plans(problem, card)
        if problem.batch == () and problem.k >= 256 and not problem.empty:
            made += [
                planning.plan(problem, card, "auto", both) for both in ((True, False), (False, True), (True, True))
            ]
        for launch in itertools.chain(*(plan.launches for plan in made)):
            (source,) = (s for s in SOURCES if s.source == launch.source and s.has(launch.constants))
            if launch.entry == "mm32_scale":  # where there are few blocks, more threads read whole rows
                assert launch.block in (256, planning.packing.SCALE_THREADS)
            else:
                assert source.threads(dict(launch.constants)) == launch.block


def test_random_plans_reach_every_tile_and_load() -> None:
    """The axes have nothing that no plan has: each value of a constant, except those of the epilogue, is in some launch."""
    rng = random.Random(4)
    problems = [random_gemm(rng) for _ in range(1200)]
    seen: set[tuple] = set()
    for problem in problems:
        for precision in ("fp32", "tf32", "bf16x6"):
            for made in plans(dataclasses.replace(problem, precision=precision), H200):
                seen |= {(x.source, *pair) for x in made.launches for pair in x.constants}
    listed = {(source, *pair) for _, source, constants, _ in planning.forms() for pair in constants}
    left = {pair for pair in listed - seen if pair[1] not in ("BIAS", "ACTIVATION") and pair[0] != "fma/fixup.cu"}
    packed = {("emulated/pack.cu", side, planning.packing.PREPACKED) for side in ("A_LOAD", "B_LOAD")}
    assert left == packed | {("emulated/tensorcore.cu", side, 0) for side in ("A_UNIT_ROWS", "B_UNIT_ROWS")}
    assert "fma/fixup.cu" in {source for source, _, _ in seen}, (
        "stream-K is rare among random sizes: few of its values are seen"
    )


@pytest.mark.parametrize("kernel", KERNELS)
def test_each_kernel_has_every_activation(kernel: str) -> None:
    listed = [dict(constants) for name, _, constants, _ in planning.forms() if name == kernel]
    assert {c["ACTIVATION"] for c in listed if "ACTIVATION" in c} == set(range(1 + len(activations.ACTIVATIONS)))
    assert {c["BIAS"] for c in listed if "BIAS" in c} == {0, 1}


def test_forms_are_listed_once() -> None:
    listed = [(source, constants) for _, source, constants, _ in planning.forms()]
    assert len(set(listed)) == len(listed) <= 500
