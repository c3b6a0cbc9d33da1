"""The models of examples/models/: their mathematics, their float64 truth, and the harness that runs them. On a card, mm32's
errors must not be larger than those of torch's fp32."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import mm32
from mm32.bench import models
from mm32.dropin import Stats
from support import example_scripts

SCRIPTS = Path(__file__).parent.parent / "examples" / "models"
NAMES = ("transformer", "pinn", "gp", "newton_schulz")


def load(name: str) -> ModuleType:
    if name == "transformer":
        pytest.importorskip("transformers", reason="transformers is not installed: pip install -e '.[examples]'")
    return example_scripts.load(SCRIPTS / f"{name}.py")


class Seen(TorchDispatchMode):
    """A mode that counts operators, and keeps the dtypes of the floating-point tensors that they return. Scalars are left out,
    because torch's optimizers count their steps in a float32."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: Counter[str] = Counter()
        self.dtypes: set[torch.dtype] = set()

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operator(*args, **(kwargs or {}))
        self.operators[operator.overloadpacket.__name__] += 1
        tensors = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.dim()]
        self.dtypes |= {t.dtype for t in tensors if t.is_floating_point()}
        return result


# ---------------------------------------------------------------------------------------------------------------------
# Every script, small, on the CPU


@pytest.mark.parametrize("name", NAMES)
def test_the_truth_is_float64_throughout(name: str) -> None:
    for model in load(name).make("cpu", True):
        step = model.prepare(torch.float64)
        with Seen() as seen:
            outcome = step()
        assert seen.dtypes == {torch.float64}, model.name
        assert all(t.dtype == torch.float64 and not t.requires_grad for ts in outcome.values() for t in ts)


@pytest.mark.parametrize("name", NAMES)
def test_errors_are_those_of_fp32(name: str) -> None:
    for model in load(name).make("cpu", True):
        errors = model.judge(model.prepare(torch.float32)(), model.prepare(torch.float64)())
        # Measured: 1.3e-6 for Newton-Schulz' update, at most 7e-7 for all else. TF32's errors would be 1e-4 and more.
        for quantity, error in errors.items():
            assert 1e-8 < error <= 5e-6, (model.name, quantity)


@pytest.mark.parametrize("name", NAMES)
def test_states_start_equal_and_apart(name: str) -> None:
    """A step updates its own weights, but leaves what the next state starts from unchanged."""
    for model in load(name).make("cpu", True):
        first = {q: [t.clone() for t in ts] for q, ts in model.prepare(torch.float64)().items()}
        assert all(e <= 1e-13 for e in models.relative_errors(model.prepare(torch.float64)(), first).values())


@pytest.mark.parametrize(
    "name", [name if name == "newton_schulz" else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_a_script_runs_from_the_command_line(name: str) -> None:
    load(name)  # skips the test if a package is missing
    done = subprocess.run(
        [sys.executable, SCRIPTS / f"{name}.py", "--small"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split("  ")[0] for line in lines if line.startswith(("torch", "mm32 "))][-3:] == [
        "torch fp32", "torch TF32", "mm32",
    ]  # fmt: skip
    if not torch.cuda.is_available():
        assert lines[0] == models.ON_CPU


# ---------------------------------------------------------------------------------------------------------------------
# Transformer


def test_the_transformers_products_are_torchs_own() -> None:
    inference, training = load("transformer").make("cpu", True)
    with Seen() as seen:
        inference.prepare(torch.float32)()
    # Each of 2 layers has 4 addmm: the projection to q, k and v, that of the heads, and the MLP's two; and 2 bmm: q k' and p v.
    assert {op: seen.operators[op] for op in ("addmm", "bmm", "mm")} == {"addmm": 8, "bmm": 4, "mm": 1}
    with Seen() as seen:
        training.prepare(torch.float32)()
    assert {op: seen.operators[op] for op in ("addmm", "bmm", "mm")} == {"addmm": 8, "bmm": 12, "mm": 19}
    assert not [op for op in seen.operators if "scaled_dot_product" in op]


# ---------------------------------------------------------------------------------------------------------------------
# PINN


def test_derivatives_of_a_known_function() -> None:
    points = torch.rand(100, 2, dtype=torch.float64)
    x, t = points.T
    found = load("pinn").derivatives(lambda p: torch.sin(3 * p[:, :1]) * p[:, 1:] ** 2, points)
    expected = (
        torch.sin(3 * x) * t**2,
        3 * torch.cos(3 * x) * t**2,
        2 * torch.sin(3 * x) * t,
        -9 * torch.sin(3 * x) * t**2,
    )
    for f, e in zip(found, expected, strict=True):
        assert torch.allclose(f, e, rtol=1e-12, atol=1e-12)


def test_derivatives_of_a_network_agree_with_differences(seed: int) -> None:
    pinn = load("pinn")
    net, points, h = pinn.network(32, 3).double(), torch.rand(50, 2, dtype=torch.float64), 1e-4
    dx, dt = torch.tensor([[h, 0.0], [0.0, h]], dtype=torch.float64)
    with torch.no_grad():
        middle, right, left = net(points)[:, 0], net(points + dx)[:, 0], net(points - dx)[:, 0]
        later, before = net(points + dt)[:, 0], net(points - dt)[:, 0]
    u, u_x, u_t, u_xx = (d.detach() for d in pinn.derivatives(net, points))
    assert torch.equal(u, middle)
    assert (u_x - (right - left) / (2 * h)).abs().max() <= 1e-6
    assert (u_t - (later - before) / (2 * h)).abs().max() <= 1e-6
    assert (u_xx - (right - 2 * middle + left) / h**2).abs().max() <= 1e-5
    assert u_xx.abs().max() > 0.01


def test_the_pinn_learns() -> None:
    """The optimizer that the step runs makes the gradient smaller than it was at the start."""
    step = load("pinn").make("cpu", True)[0].prepare(torch.float32)
    norms = [math.hypot(*(float(g.norm()) for g in step()["gradient"])) for _ in range(30)]
    assert norms[-1] < 0.5 * norms[0]


# ---------------------------------------------------------------------------------------------------------------------
# Gaussian process


def spd(n: int) -> torch.Tensor:
    a = torch.randn(n, n, dtype=torch.float64)
    return a @ a.T / n + torch.eye(n, dtype=torch.float64)


@pytest.mark.parametrize(("n", "block"), [(1, 4), (64, 16), (100, 32), (96, 100)])
def test_the_blocked_factorisation_is_choleskys(n: int, block: int, seed: int) -> None:
    gp, a = load("gp"), spd(n)
    expected = torch.linalg.cholesky(a)
    factor = gp.cholesky_(a.clone(), block).tril()
    assert torch.allclose(factor, expected, rtol=1e-12, atol=1e-12)
    b = torch.randn(n, 3, dtype=torch.float64)
    kept = b.clone()
    x = gp.solve_lower(factor, b, block)
    assert torch.allclose(expected @ x, b, rtol=1e-11, atol=1e-11)
    assert torch.equal(b, kept)


def test_what_is_not_positive_definite_is_refused(seed: int) -> None:
    a = spd(64)
    a[40, 40] = -1.0
    with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
        load("gp").cholesky_(a, 16)


def test_the_kernel_is_rbf(seed: int) -> None:
    x, z = torch.randn(30, 5, dtype=torch.float64), torch.randn(20, 5, dtype=torch.float64)
    expected = torch.exp(-(torch.cdist(x, z) ** 2) / (2 * 1.5**2))
    assert torch.allclose(load("gp").rbf(x, z, 1.5), expected, rtol=1e-12, atol=1e-14)


def test_the_posterior_is_that_of_a_direct_solution(seed: int) -> None:
    gp = load("gp")
    x, at, y = (torch.randn(*shape, dtype=torch.float64) for shape in ((120, 3), (17, 3), (120,)))
    mean, variance = gp.posterior(x, y, at, 1.2, 0.1, block=32)
    inverse = torch.linalg.inv(gp.rbf(x, x, 1.2) + 0.01 * torch.eye(120, dtype=torch.float64))
    cross = gp.rbf(x, at, 1.2)
    assert torch.allclose(mean, cross.T @ inverse @ y, rtol=1e-9, atol=1e-10)
    assert torch.allclose(variance, 1 - (cross.T @ inverse @ cross).diagonal(), rtol=1e-9, atol=1e-10)
    assert bool(((variance > 0) & (variance < 1)).all())


# ---------------------------------------------------------------------------------------------------------------------
# Newton-Schulz


@pytest.mark.parametrize("shape", [(48, 48), (32, 128), (128, 32)])
def test_newton_schulz_finds_the_polar_factor(shape: tuple[int, int], seed: int) -> None:
    ns = load("newton_schulz")
    g = torch.randn(*shape, dtype=torch.float64)
    u, _, vh = torch.linalg.svd(g, full_matrices=False)
    found = ns.orthogonalised(g)
    assert models.relative_error([found], [u @ vh]) <= 1e-8
    assert ns.orthogonality(found) <= 1e-8


def test_orthogonality_is_a_distance_from_the_identity() -> None:
    ns = load("newton_schulz")
    assert ns.orthogonality(torch.eye(5, 9)) == 0
    assert ns.orthogonality(2 * torch.eye(9, 5)) == pytest.approx(3)  # 4 - 1 on the whole diagonal
    assert math.isnan(ns.orthogonality(torch.full((4, 4), math.nan)))


# ---------------------------------------------------------------------------------------------------------------------
# The harness


def test_relative_error_is_that_of_all_tensors_together() -> None:
    truth = [torch.tensor([3.0], dtype=torch.float64), torch.tensor([[0.0, 4.0]], dtype=torch.float64)]
    assert models.relative_error([torch.tensor([3.0]), torch.tensor([[0.5, 4.0]])], truth) == pytest.approx(0.1)
    assert math.isnan(models.relative_error([torch.tensor([3.0]), torch.tensor([[math.nan, 4.0]])], truth))
    with pytest.raises(ValueError, match="longer"):
        models.relative_error([torch.tensor([3.0])], truth)


def test_settings_are_what_they_say_and_leave_nothing() -> None:
    def allowed() -> tuple[bool, bool]:
        return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32

    before = allowed()
    for name in models.SETTINGS:
        with models.setting(name):
            assert allowed() == (name == "torch-tf32",) * 2
        assert allowed() == before


def stepping(raises: Callable[[], bool]) -> models.Model:
    """Return a model whose float32 outcome is off by 1e-3, and whose float32 step fails if `raises()` is true."""

    def prepare(dtype: torch.dtype) -> models.Step:
        def step() -> models.Outcome:
            if dtype == torch.float32 and raises():
                raise torch.linalg.LinAlgError("not positive-definite")
            return {"x": [torch.full((10,), 1.0 if dtype == torch.float64 else 1.001, dtype=dtype)]}

        return step

    return models.Model("stepping", "ten numbers", prepare)


def test_a_row_has_times_errors_and_failures(capsys: pytest.CaptureFixture[str]) -> None:
    model = stepping(lambda: torch.backends.cuda.matmul.allow_tf32)
    row = models.measure(model, rounds=5)
    assert row["rounds"] == 5
    assert row["results"]["torch-tf32"] == {"failed": "not positive-definite"}
    for name in ("torch", "mm32"):
        result = row["results"][name]
        assert result["errors"]["x"] == pytest.approx(1e-3, rel=1e-3)
        assert 0 < result["low"] <= result["seconds"] <= result["high"]
    assert row["results"]["torch"]["speedup"] == 1
    assert row["results"]["mm32"]["kernels"] == {}  # the step has no product
    assert row["results"]["mm32"]["tiers"] == {}
    lines = models.table(row).splitlines()
    assert lines[2] == "torch TF32  failed: not positive-definite"
    assert [line.split()[-1] for line in (lines[1], lines[3])] == ["1.0e-03", "1.0e-03"]
    assert models.run(lambda device, small: [model])[0]["case"] == "stepping"
    assert "stepping: ten numbers" in capsys.readouterr().out


def test_a_row_has_the_tiers_of_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts from before the step, and those of the other settings, are not included."""
    model, calls = stepping(lambda: False), 0

    def stats() -> Stats:
        nonlocal calls
        calls += 1
        return Stats({}, {}, 0.0, {"fp16x3": 10, "bf16x6": 5 + 3 * calls, "FMA": 0})

    monkeypatch.setattr(mm32, "stats", stats)
    assert models.measure(model, rounds=3)["results"]["mm32"]["tiers"] == {"bf16x6": 3}


def test_products_are_said_by_kernel_and_by_tier() -> None:
    result = {"kernels": {"tensorcore": 4, "simt": 1}, "left to torch": {"too small": 2}}
    assert models.products(result) == "products of a step: mm32 ran 4 tensorcore, 1 simt; torch ran 2 (too small)"
    result["tiers"] = {"fp16x3": 3, "bf16x6": 1}
    assert models.products(result) == (
        "products of a step: mm32 ran 4 tensorcore, 1 simt; tiers: 3 fp16x3, 1 bf16x6; torch ran 2 (too small)"
    )
    nothing = {"kernels": {}, "tiers": {}, "left to torch": {}}
    assert models.products(nothing) == "products of a step: mm32 ran none; torch ran none"


def test_torchs_own_failure_is_not_hidden() -> None:
    with pytest.raises(torch.linalg.LinAlgError):
        models.measure(stepping(lambda: True))


# ---------------------------------------------------------------------------------------------------------------------
# On a card, at the sizes of the record


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_mm32_is_as_accurate_as_fp32_in_a_model(name: str) -> None:
    if torch.cuda.get_device_properties(0).total_memory < 72 * 10**9:
        pytest.skip("the models' full sizes are for a card with 80 GB or more")
    for model in load(name).make("cuda", False):
        row = models.measure(model, rounds=3)
        torchs, ours, tf32 = (row["results"][setting] for setting in ("torch", "mm32", "torch-tf32"))
        assert sum(ours["kernels"].values()) > 0, (model.name, ours)
        for quantity, error in torchs["errors"].items():
            assert ours["errors"][quantity] <= 1.5 * error, (model.name, quantity, ours["errors"], torchs["errors"])
            # The same errors do show what TF32 does to the step.
            assert "failed" in tf32 or tf32["errors"][quantity] > 10 * ours["errors"][quantity], (model.name, quantity)
