"""benchmarks/fit.py: its cases, and that fitting finds the shares that made a record."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from mm32 import gemm
from mm32 import plan as planning
from mm32.bench import suite
from mm32.errors import CompileError
from mm32.plan import H200, cost

ROOT = Path(__file__).parents[1]
SMALL = {"simt.launches": 2.0, "simt.memory": 0.35, "simt.128x64.3": 0.6, "narrow.memory": 0.6, "torch.fp32": 0.6}


@pytest.fixture(scope="module")
def fit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fit", ROOT / "benchmarks" / "fit.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["fit"] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module


def synthetic(fit: ModuleType, count: int, truth: dict[str, float], noise: float = 0.02) -> dict[str, Any]:
    """Return the record that a card with these shares would give, of the candidates that today's shares find sensible."""
    rng, rows = random.Random(1), []
    for case in fit.cases(count):
        asked = fit.problem(asdict(case))
        labels = fit.sensible(asked, H200)
        kernels = {"torch", *(plan.kernel for plan in labels.values())}
        with cost.shares(truth):
            times = {label: t for kernel in kernels for label, t, _ in planning.candidates(asked, H200, kernel)}
        results = {
            label: {"seconds": times[label] * rng.lognormvariate(0, noise), "kernel": kernel}
            for label, kernel in [("torch", "torch"), *((label, plan.kernel) for label, plan in labels.items())]
        }
        rows.append({"case": case.name, **asdict(case), "results": results, "unavailable": {}})
    return {"schema": 1, "name": "cases", "environment": {"card": "NVIDIA H200"}, "kernels": {}, "rows": rows}


def test_cases_are_many_distinct_and_the_same_each_time(fit: ModuleType) -> None:
    made = fit.cases()
    assert len(made) >= 300
    assert len({case.name for case in made}) == len(made)
    assert fit.cases(40) == made[:40]
    held = sum(fit.held_out(case.name) for case in made)
    assert 0.4 * len(made) < held < 0.6 * len(made)
    assert {case.layout for case in made} == set(gemm.LAYOUTS)
    for case in made:
        assert 4.0 * case.batch * (case.m * case.k + case.k * case.n + case.m * case.n) <= fit.MOST_BYTES
    for kind in (
        [c for c in made if min(c.m, c.n) <= 16],
        [c for c in made if c.batch > 1],
        [c for c in made if c.k >= 16384],
        [c for c in made if c.k % 4],
        [c for c in made if c.bias],
        [c for c in made if c.flops > 2**36],
    ):
        assert len(kind) >= 15


def test_short_cases_are_others_than_those_of_the_record(fit: ModuleType) -> None:
    made = fit.short_cases(H200)
    assert len(made) > 400
    assert not {case.name for case in made} & {case.name for case in suite.SETS["random"][0]}
    assert all(cost.of(H200).torch(cost.Work(fit.problem(asdict(case))), "fp32") <= fit.SHORT for case in made)


def test_kernels_are_compiled_ahead(fit: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def cubin(source: str, constants: object, arch: str) -> bytes:
        asked.append((source, arch))
        raise CompileError("as this test has it")

    monkeypatch.setattr(fit.compiler, "cubin", cubin)
    some = fit.cases(6)
    fit.compile_ahead(some, H200)
    plans = [plan for case in some for plan in fit.sensible(fit.problem(asdict(case)), H200).values()]
    assert {source for source, _ in asked} == {launch.source for plan in plans for launch in plan.launches}
    assert len(asked) == len({(launch.source, launch.constants) for plan in plans for launch in plan.launches})
    assert {arch for _, arch in asked} == {"sm_90a"}


def test_a_case_is_the_product_that_is_measured(fit: ModuleType) -> None:
    """The planner's problem of a row is that of the operands that measure.Case makes."""
    for case in fit.cases(60):
        if case.m * case.k + case.k * case.n > 2**20:
            continue
        a, b, bias = case.inputs(device="cpu")
        out = torch.empty(gemm.result_shape(a.shape, b.shape))
        made, asked = gemm.describe(a, b, bias, out, case.activation), fit.problem(asdict(case))
        if case.batch == 1 or all(made.batch):
            assert (made.m, made.n, made.k, made.batch, made.layout) == (
                asked.m,
                asked.n,
                asked.k,
                asked.batch,
                asked.layout,
            )
            assert [x.batch for x in (made.a, made.b, made.out)] == [x.batch for x in (asked.a, asked.b, asked.out)]


def test_sensible_candidates(fit: ModuleType) -> None:
    made = fit.sensible(gemm.from_layout("nn", 1024, 1024, 4096), H200)
    assert {"simt", "mma", "tensorcore", "direct"} == {plan.kernel for plan in made.values()}
    assert "simt 128x64/1" in made or "simt 128x64/2" in made
    assert len(made) >= 4
    assert all(plan.launches for plan in made.values())
    assert "naive" in fit.sensible(gemm.from_layout("nn", 64, 64, 64), H200)


@pytest.mark.slow
def test_fitting_finds_the_shares_that_made_the_record(fit: ModuleType) -> None:
    made = synthetic(fit, 90, SMALL)
    everything = fit.samples([made])
    training = [s for s in everything if not fit.held_out(s.case) and s.kernel in ("simt", "torch")]
    held = [s for s in everything if fit.held_out(s.case) and s.kernel in ("simt", "torch")]
    before = fit.errors(held, H200)
    fitted = fit.fit(training, H200)
    assert cost.SHARES["simt.launches"] != SMALL["simt.launches"], "fitting leaves the table as it is"
    with cost.shares(fitted):
        after = fit.errors(held, H200)
        lost = [r.ratio - 1 for r in fit.regrets(held, H200)]
    for kernel in ("simt", "torch"):
        assert fit.measure.median(after[kernel]) < 0.05 < fit.measure.median(before[kernel])
    assert sum(lost) / len(lost) < 0.02
    assert fitted["simt.launches"] == pytest.approx(2.0, rel=0.15)
    assert fitted["torch.fp32"] == pytest.approx(0.6, rel=0.1)
    assert fitted["mma.128x3"] == pytest.approx(cost.SHARES["mma.128x3"], rel=1e-2), "no sample is mma's"


def test_errors_and_regret(fit: ModuleType) -> None:
    """A case made by hand, in which the planner chooses a kernel that took 1.5 times as long as the fastest."""
    asked = gemm.from_layout("nn", 512, 512, 512)
    seconds = {kernel: min(t for _, t, _ in planning.candidates(asked, H200, kernel)) for kernel in ("simt", "torch")}
    chosen, other = sorted(seconds, key=seconds.__getitem__)
    held = [
        fit.Sample("one", asked, chosen, chosen, 1.5 * seconds[chosen]),
        fit.Sample("one", asked, other, other, seconds[chosen]),
    ]
    assert fit.errors(held, H200)[chosen] == [pytest.approx(1 / 3)]
    (found,) = fit.regrets(held, H200)
    assert (found.case, found.chosen, found.fastest, found.ratio) == ("one", chosen, other, pytest.approx(1.5))
    assert "regret of the choice in 1 cases: mean 50.00%, worst 50.0%" in fit.report(held, H200)
    unknown = [fit.Sample("one", asked, "simt", "simt 1x1/1", 1.0)]
    assert fit.errors(unknown, H200) == {}
    assert "nothing is said of choices" in fit.report(unknown, H200)


def test_the_page(fit: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(synthetic(fit, 12, {"torch.fp32": 0.5})))
    monkeypatch.setattr(fit, "FAMILIES", {"torch": ("torch.",)})
    page = fit.fit_records([path])
    assert "of 12 cases" in page
    assert page.count("regret of the choice") == 2
    assert '"torch.' in page.partition("SHARES, those that changed:")[2]


def test_records_of_the_repository_are_read(fit: ModuleType) -> None:
    made = [
        fit.record.read(ROOT / "benchmarks" / "results" / "nvidia-h200" / f"{name}.json") for name in ("auto", "main")
    ]
    found = fit.samples(made)
    assert {"simt", "tensorcore", "torch"} <= {s.kernel for s in found}
    assert {s.torch for s in found} == {"fp32", "tf32"}
    assert len(fit.regrets(found, H200)) >= 90
