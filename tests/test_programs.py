"""The programs of examples/programs/, small, on the CPU: their float64 truth and their errors; and benchmarks/models.py, which
makes their record. A program whose library is not installed is left out, and counted as skipped."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import mm32
from mm32.bench import models, record
from support import example_scripts

ROOT = Path(__file__).parent.parent
SCRIPTS = ROOT / "examples" / "programs"
LIBRARIES = {  # program -> the library that it imports
    "gaussian_processes": "gpytorch",
    "vision_transformer": "timm",
    "language_models": "transformers",
    "graph_networks": "torch_geometric",
    "equivariant": "e3nn",
    "neural_ode": "torchdiffeq",
    "low_rank": "torch",
    "muon": "torch",
}
# Measured: at most 1e-6, except 6e-6 for the network of e3nn and 7e-5 for the gradient by conjugate gradients, which stop early.
LARGEST = {"equivariant network": 5e-5, "exact GP, conjugate gradients": 1e-3}


def load(name: str) -> ModuleType:
    for package in (LIBRARIES[name], *(["torchvision"] if name == "vision_transformer" else [])):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install -e '.[programs]'")
    return example_scripts.load(SCRIPTS / f"{name}.py")


def test_every_program_has_its_library() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.py")} == set(LIBRARIES)
    assert {name: package.replace("-", "_") for name, package in bench().PROGRAMS.items()} == LIBRARIES


SLOW = pytest.mark.slow
QUICK = ("low_rank", "muon")  # programs that take a second each


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=SLOW) for name in LIBRARIES])
def test_errors_are_those_of_fp32(name: str) -> None:
    """Errors are those of fp32. A new state starts where the first one did, though a step changes its weights."""
    for model in load(name).make("cpu", True):
        truth = {q: [t.clone() for t in ts] for q, ts in model.prepare(torch.float64)().items()}
        assert all(t.dtype == torch.float64 and not t.requires_grad for ts in truth.values() for t in ts), model.name
        for quantity, error in model.judge(model.prepare(torch.float32)(), truth).items():
            assert 1e-8 < error <= LARGEST.get(model.name, 5e-6), (model.name, quantity)
        assert all(e <= 1e-12 for e in models.relative_errors(model.prepare(torch.float64)(), truth).values()), (
            model.name
        )


def test_llamas_truth_has_no_norm_in_float32() -> None:
    script = load("language_models")
    x = torch.randn(3, 16, dtype=torch.float64)
    holder = nn.Sequential(nn.Sequential(script.LlamaRMSNorm(16, eps=1e-5)), nn.Linear(16, 16)).double()
    nn.init.normal_(holder[0][0].weight)
    own = script.with_torchs_norm(holder)
    assert not any(isinstance(module, script.LlamaRMSNorm) for module in own.modules())
    assert isinstance(holder[0][0], script.LlamaRMSNorm)
    wanted = x / (x.square().mean(1, keepdim=True) + 1e-5).sqrt() * holder[0][0].weight
    assert models.relative_error([own[0](x).detach()], [wanted.detach()]) <= 1e-15
    assert models.relative_error([holder[0](x).detach()], [wanted.detach()]) > 1e-9  # why Llama's own norm is replaced


def test_muons_products_are_bfloat16() -> None:
    """The products of its update are: mm32 leaves them to torch, and the gradient does not depend on them."""
    seen: set[torch.dtype] = set()
    muon = load("muon")
    (model,) = muon.make("cpu", True)
    multiply = torch.addmm

    def spy(*args: Any, **options: Any) -> torch.Tensor:
        seen.add(args[1].dtype)
        return multiply(*args, **options)

    step = model.prepare(torch.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "addmm", spy)
        step()
    assert seen == {torch.bfloat16}


def test_the_svd_finds_the_matrix_again() -> None:
    script = load("low_rank")
    (model,) = script.make("cpu", True)
    values = model.prepare(torch.float64)()["values"][0]
    assert bool((values[:-1] >= values[1:]).all())
    assert len(values) == 20


# ---------------------------------------------------------------------------------------------------------------------
# What the programs share


def test_draws_are_the_same_in_both_types() -> None:
    with models.SameDraws(3):
        single = torch.randn(4, 5), torch.randn_like(torch.ones(3)), torch.randn(2)
    with models.SameDraws(3):
        double = torch.randn(4, 5, dtype=torch.float64), torch.randn_like(torch.ones(3).double()), torch.randn(2)
    assert [t.dtype for t in double] == [torch.float64, torch.float64, torch.float32]
    assert all(torch.equal(s.double(), d.double()) for s, d in zip(single, double, strict=True))
    with models.SameDraws(4):
        assert not torch.equal(torch.randn(4, 5), single[0])


def test_training_is_one_step_of_the_optimizer() -> None:
    weights, x, labels = nn.Linear(3, 2), torch.randn(5, 3), torch.tensor([0, 1, 1, 0, 1])
    asked: list[torch.dtype] = []

    def loss(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        asked.append(y.dtype)
        out = module(x)
        return nn.functional.cross_entropy(out, y), out

    before = weights.weight.clone()
    step = models.training(weights, (x, labels), loss, lambda m: torch.optim.SGD(m.parameters(), lr=0.5))(torch.float64)
    first, second = step(), step()
    exact = nn.Linear(3, 2).double()
    exact.load_state_dict({name: value.double() for name, value in weights.state_dict().items()})
    value, out = loss(exact, x.double(), labels)
    value.backward()
    assert models.relative_error(first["prediction"], [out.detach()]) <= 1e-15
    with torch.no_grad():
        for p in exact.parameters():
            p -= 0.5 * p.grad
    assert models.relative_error(second["prediction"], [exact(x.double()).detach()]) <= 1e-14
    assert asked == [torch.int64] * 3
    assert torch.equal(weights.weight, before)


def test_steps_before_the_timed_ones() -> None:
    calls: list[str] = []

    def prepare(dtype: torch.dtype) -> models.Step:
        def step() -> models.Outcome:
            calls.append(str(dtype))
            return {"x": [torch.ones(1, dtype=dtype)]}

        return step

    models.measure(models.Model("counted", "ones", prepare, warmup=2), rounds=3)
    assert calls == ["torch.float64"] + ["torch.float32"] * 3 * (1 + 2 + 3)


# ---------------------------------------------------------------------------------------------------------------------
# The record


def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_models", ROOT / "benchmarks" / "models.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def one(name: str, raises: Exception | None = None) -> models.Model:
    def prepare(dtype: torch.dtype) -> models.Step:
        def step() -> models.Outcome:
            if raises is not None:
                raise raises
            return {"x": [torch.full((2,), 1.0 if dtype == torch.float64 else 1.001, dtype=dtype)]}

        return step

    return models.Model(name, "two numbers", prepare)


def refuses(device: str, small: bool) -> list[models.Model]:
    raise ImportError("no module named torchvision\nand more")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/models.py with programs for the test: one with two models, of which one fails; one that cannot be made; one
    whose library is not there; one that works."""
    module = bench()
    made: dict[str, models.Make] = {
        "half": lambda device, small: [one("works"), one("breaks", RuntimeError("out of luck\nand more"))],
        "unmade": refuses,
        "missing": lambda device, small: [one("missing")],
        "whole": lambda device, small: [one("also works")],
    }
    monkeypatch.setattr(module, "PROGRAMS", dict.fromkeys(made, "torch") | {"missing": "no-such-package"})
    monkeypatch.setattr(module, "load", lambda folder, name: SimpleNamespace(make=made[name]))
    monkeypatch.setattr(models, "_interleave", lambda steps, *_: {name: [0.5, 0.5, 0.5] for name in steps})
    return module


def run(script: ModuleType, monkeypatch: pytest.MonkeyPatch, path: Path, *options: str) -> int:
    monkeypatch.setattr(sys, "argv", ["models.py", "--small", "-o", str(path), *options])
    return script.main()


def test_a_program_that_fails_does_not_stop_the_others(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "programs.json"
    assert run(script, monkeypatch, path, "--programs") == 1
    made = record.read(path)
    assert [(row["case"], row["program"], row["library"]) for row in made["rows"]] == [
        ("works", "half", f"torch {torch.__version__}"), ("also works", "whole", f"torch {torch.__version__}"),
    ]  # fmt: skip
    assert made["failed"] == {
        "breaks": {"program": "half", "why": "RuntimeError: out of luck"},
        "unmade": {"program": "unmade", "why": "ImportError: no module named torchvision"},
        "missing": {"program": "missing", "why": "no-such-package is not installed"},
    }
    assert made["name"] == "programs"
    assert "not measured: breaks: RuntimeError: out of luck" in capsys.readouterr().err


def test_what_one_program_is_run_for_again_takes_the_place_of_its_rows(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "programs.json"
    run(script, monkeypatch, path, "--programs")
    monkeypatch.setattr(script, "load", lambda folder, name: SimpleNamespace(make=lambda *_: [one("mended")]))
    assert run(script, monkeypatch, path, "--only", "half") == 1  # since the others' failures are still there
    made = record.read(path)
    assert [row["case"] for row in made["rows"]] == ["mended", "also works"]
    assert made["failed"].keys() == {"unmade", "missing"}


def test_a_run_that_ended_is_resumed(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program that was being measured counts as failed, and --resume does not try it again, since it may have ended the
    run."""
    path = tmp_path / "programs.json"

    def ends(*_: object) -> list[models.Model]:
        raise KeyboardInterrupt

    load = script.load
    with monkeypatch.context() as patch:
        patch.setattr(
            script, "load", lambda folder, name: SimpleNamespace(make=ends) if name == "unmade" else load(folder, name)
        )
        with pytest.raises(KeyboardInterrupt):
            run(script, monkeypatch, path, "--programs")
    assert record.read(path)["failed"]["unmade"]["why"] == script.ENDED
    assert run(script, monkeypatch, path, "--programs", "--resume", "--limit", "-1") == 1
    assert "no time was left for missing, whole: run it again with --resume" in capsys.readouterr().err
    run(script, monkeypatch, path, "--programs", "--resume")
    made = record.read(path)
    assert [row["case"] for row in made["rows"]] == ["works", "also works"]
    assert made["failed"]["unmade"]["why"] == script.ENDED


def test_rows_of_another_machine_are_not_added_to(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "programs.json"
    run(script, monkeypatch, path, "--programs")
    made = json.loads(path.read_text())
    made["environment"]["torch"] = "0.1"
    path.write_text(json.dumps(made))
    assert run(script, monkeypatch, path, "--only", "whole") == 2
    assert "is of another card, other versions or older kernels: remove it" in capsys.readouterr().err
    assert run(script, monkeypatch, path, "--programs") == 1  # measures all of them again
    assert record.read(path)["environment"]["torch"] == torch.__version__


def test_a_program_that_fails_under_mm32_alone_has_no_row(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def measure(model: models.Model, rounds: int = 9, budget: float = 6.0) -> dict[str, Any]:
        done: dict[str, Any] = {"seconds": 1.0, "speedup": 1.0, "errors": {"x": 0.0}, "kernels": {}}
        return {"case": model.name, "what": "", "results": {"torch": done, "mm32": {"failed": "not definite"}}}

    monkeypatch.setattr(models, "measure", measure)
    path = tmp_path / "programs.json"
    assert run(script, monkeypatch, path, "--only", "whole") == 1
    made = record.read(path)
    assert (made["rows"], made["failed"]["also works"]["why"]) == ([], "under mm32: not definite")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--resume",), "--resume, --small and --limit are of --programs"),
        (("--programs", "--small"), "say with -o where to"),
        (("--only", "nothing"), "invalid choice: 'nothing'"),
    ],
)
def test_options_that_do_not_fit(
    options: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["models.py", *options])
    with pytest.raises(SystemExit) as ended:
        bench().main()
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------------------------
# On a card, at the sizes of the record


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("name", LIBRARIES)
def test_mm32_is_as_accurate_as_fp32_in_a_program(name: str) -> None:
    """This holds for quantities of many numbers. A Gaussian process has few numbers, whose errors are a matter of chance."""
    if torch.cuda.get_device_properties(0).total_memory < 130 * 10**9:
        pytest.skip("the programs' full sizes are for a card with 140 GB")
    mm32.stats(reset=True)
    for model in load(name).make("cuda", False):
        row = models.measure(model, budget=1.0)
        torchs, ours = (row["results"][setting] for setting in ("torch", "mm32"))
        for quantity, error in torchs["errors"].items():
            assert math.isfinite(ours["errors"][quantity]), (model.name, quantity)
            if name != "gaussian_processes":
                assert ours["errors"][quantity] <= 1.5 * error, (model.name, quantity, ours["errors"], torchs["errors"])
        del row
        torch.cuda.empty_cache()
