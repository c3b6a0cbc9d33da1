"""Which products mm32 takes over from torch on a card, by the planner's estimates, and what prevents it."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mm32 import dropin as module
from mm32 import prepared
from mm32.cuda import launch
from mm32.dropin import Left, Taken
from mm32.errors import CompileError, LaunchError
from mm32.gemm import Gemm, from_layout
from mm32.plan import H200, cost, plan

RECORD = Path(__file__).parent.parent / "benchmarks" / "results" / "nvidia-h200" / "shapes.json"


def recorded() -> list[tuple[str, Gemm, float, float]]:
    """Return (case, problem, torch's seconds, mm32's seconds) as measured in the H200's record, each in fp32 and in TF32."""
    rows = []
    for row in json.loads(RECORD.read_text())["rows"]:
        for precision, suffix in (("fp32", ""), ("tf32", "-tf32")):
            problem = from_layout(row["layout"], row["m"], row["n"], row["k"], precision=precision)
            if row["batch"] > 1:
                a, b, out = (
                    replace(matrix, batch=(rows * columns,))
                    for matrix, rows, columns in (
                        (problem.a, problem.m, problem.k),
                        (problem.b, problem.k, problem.n),
                        (problem.out, problem.m, problem.n),
                    )
                )
                problem = replace(problem, batch=(row["batch"],), a=a, b=b, out=out)
            seconds = [row["results"][name + suffix]["seconds"] for name in ("torch", "mm32")]
            rows.append((f"{row['case']} batch {row['batch']} {precision}", problem, *seconds))
    return rows


@pytest.mark.parametrize(("case", "problem", "torchs", "ours"), [pytest.param(*r, id=r[0]) for r in recorded()])
def test_the_choice_is_the_measured_one(case: str, problem: Gemm, torchs: float, ours: float) -> None:
    """Wherever one of them was faster by more than a quarter on an H200, it is chosen."""
    chosen = plan(problem, H200, torch=problem.precision, drop_in=True).kernel
    if ours < 0.8 * torchs:
        assert chosen != "torch", case
    if torchs < 0.8 * ours:
        assert chosen == "torch", case


def test_what_follows_the_product_counts() -> None:
    problem = from_layout("nn", 4096, 4096, 4096)
    plans = [plan(problem, H200, torch="fp32", passes=n, drop_in=True) for n in (0, 2)]
    assert [made.kernel for made in plans] == ["tensorcore", "tensorcore"]
    whole, less = map(prepared.seconds_saved, plans)
    assert whole == cost.of(H200).torch(cost.Work(problem), "fp32") - plans[0].estimates[0][1]
    traffic = 2 * 3 * 4 * 4096 * 4096
    assert traffic / 5e12 <= whole - less <= traffic / 2e12
    assert whole > 0
    assert plan(problem, H200, torch="tf32", drop_in=True).kernel == "torch", "fp32 is no gain over torch's TF32"
    assert prepared.seconds_saved(plan(problem, H200)) == 0.0


class Ready:
    def __init__(self, plan: object, index: int) -> None:
        self.plan = plan


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An H200 as the planner sees it; kernels are not loaded."""
    monkeypatch.setattr(launch, "card_of", lambda index: H200)
    monkeypatch.setattr(launch, "Executable", Ready)
    monkeypatch.setattr(prepared, "_missing", None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return monkeypatch


def test_preparing_for_a_card(h200: pytest.MonkeyPatch) -> None:
    large, vector = from_layout("nn", 4096, 4096, 4096), from_layout("nn", 1, 4096, 4096)
    taken = module.prepare(large, 0, "fp32", 0)
    assert isinstance(taken, Taken)
    assert taken.kernel == taken.run.plan.kernel == "tensorcore"
    assert taken.saved == prepared.seconds_saved(taken.run.plan) > 0
    assert module.prepare(vector, 0, "fp32", 0) == Left("torch's kernel is expected to be faster")


def test_what_takes_the_host_longer_than_the_card_is_left(h200: pytest.MonkeyPatch) -> None:
    """The estimate of torch's time decides this, on both sides of the limit, although mm32's is lower."""
    for size, left in ((192, True), (512, False)):
        problem = from_layout("nn", size, size, size)
        planned = plan(problem, H200, torch="fp32", drop_in=True)
        estimates = dict(planned.estimates)
        assert planned.kernel != "torch"
        assert (estimates["torch"] < module.SHORTEST) == left
        found = module.prepare(problem, 0, "fp32", 0)
        assert found == Left(module.TOO_SMALL) if left else isinstance(found, Taken)


def test_no_tiny_product_is_one_that_would_be_taken(h200: pytest.MonkeyPatch) -> None:
    """On an H200, products without a batch that are too tiny to be looked up would not be taken anyway, so that skipping the
    look-up makes no difference."""
    for k in (1, 4, 16, 48, 128, 512, 4096, module.TINY):
        longest = module.TINY // k
        for m, n in itertools.product({1, longest // 16 or 1, longest}, repeat=2):
            for layout in ("nn", "nt", "tn"):
                found = module.prepare(from_layout(layout, m, n, k), 0, "fp32", 0)
                assert isinstance(found, Left), (m, n, k, layout)


def test_a_kernel_is_not_loaded_inside_a_capture(h200: pytest.MonkeyPatch) -> None:
    h200.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    found = module.prepare(from_layout("nn", 4096, 4096, 4096), 0, "fp32", 0)
    assert isinstance(found, Left)
    assert found.for_now


def test_a_card_without_kernels_is_left_to_torch(h200: pytest.MonkeyPatch) -> None:
    h200.setattr(launch, "card_of", lambda index: replace(H200, name="Tesla T4", capability=(7, 5)))
    found = module.prepare(from_layout("nn", 4096, 4096, 4096), 0, "fp32", 0)
    assert isinstance(found, Left)
    assert "Tesla T4 has 7.5" in found.reason


@pytest.mark.parametrize("error", [CompileError("the log"), LaunchError("the driver")])
def test_a_kernel_that_cannot_be_made_is_left_with_a_warning(error: Exception, h200: pytest.MonkeyPatch) -> None:
    def fail(plan: object, index: int) -> None:
        raise error

    h200.setattr(launch, "Executable", fail)
    with pytest.warns(UserWarning, match=f"leaves a product to torch.*{error}"):
        found = module.prepare(from_layout("nn", 4096, 4096, 4096), 0, "fp32", 0)
    assert found == Left(f"mm32's kernel could not be made ready ({type(error).__name__})")


def test_without_a_compiler_products_are_left(h200: pytest.MonkeyPatch) -> None:
    def fail(plan: object, index: int) -> None:
        raise ImportError("no module named cuda")

    h200.setattr(launch, "Executable", fail)
    for _ in range(2):
        found = module.prepare(from_layout("nn", 4096, 4096, 4096), 0, "fp32", 0)
        assert isinstance(found, Left)
        assert found.reason.startswith("its kernels need cuda-core with NVRTC: pip install")
