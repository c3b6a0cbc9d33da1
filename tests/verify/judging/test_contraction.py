"""Which models are contractions, their gauge, and what the probes fill in."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import mm32.verify
from mm32.verify.inputs import probes
from mm32.verify.judging import contractions, exact, operator_mode
from mm32.verify.reference import ReferenceRunner
from mm32.verify.worker import rewrite
from support.verify.contraction import Wrap, contraction

R = torch.rand
MODELS: dict[str, tuple[nn.Module, tuple[Tensor, ...], tuple[int, int, int], str | None]] = {
    "nn": (Wrap(lambda a, b: a @ b), (R(5, 7), R(7, 9)), (5, 9, 7), None),
    "tt": (Wrap(lambda a, b: torch.matmul(a.T, b.T)), (R(7, 5), R(9, 7)), (5, 9, 7), None),
    "relu": (Wrap(lambda a, b: F.relu(a @ b)), (R(5, 7), R(7, 9)), (5, 9, 7), "relu"),
    "linear": (nn.Linear(7, 9), (R(5, 7),), (5, 9, 7), None),
    "batched linear": (nn.Sequential(nn.Linear(7, 9), nn.SiLU()), (R(2, 5, 7),), (10, 9, 7), "silu"),
    "bmm": (Wrap(torch.bmm), (R(3, 5, 7), R(3, 7, 9)), (5, 9, 7), None),
    "einsum": (Wrap(lambda a, b: torch.einsum("km,nk->mn", a, b)), (R(7, 5), R(9, 7)), (5, 9, 7), None),
    "mv": (Wrap(torch.mv), (R(5, 7), R(7)), (5, 1, 7), None),
    "list": (Wrap(lambda a, b: [torch.tanh(a @ b)]), (R(5, 7), R(7, 9)), (5, 9, 7), "tanh"),
}


@pytest.mark.parametrize("name", MODELS)
def test_contractions_are_found_and_replayed(name: str) -> None:
    model, inputs, size, activation = MODELS[name]
    found, values = contraction(model, *inputs)
    told = found.describe()
    assert (told["m"], told["n"], told["k"], told["activation"]) == (*size, activation)
    right = model(*inputs)
    right = right[0] if isinstance(right, list) else right
    with torch.no_grad():
        assert torch.equal(found.run(values), right)
        gauge = found.gauge(values)
        assert gauge.dtype == torch.float32
        assert gauge.shape == right.shape
        if name == "nn":
            assert torch.allclose(gauge.double(), inputs[0].double() @ inputs[1].double(), rtol=1e-6)
        halved = found.run(values, contractions.half_of_k)
        assert not torch.allclose(halved, right)


def test_the_gauge_takes_absolute_values_and_the_bias_and_no_activation() -> None:
    model = nn.Sequential(nn.Linear(7, 9), nn.ReLU())
    x = torch.randn(5, 7)
    found, values = contraction(model, x)
    linear = model[0]
    right = x.abs().double() @ linear.weight.abs().double().T + linear.bias.abs().double()  # type: ignore[operator]
    with torch.no_grad():
        assert torch.allclose(found.gauge(values).double(), right, rtol=1e-6)


def test_the_gauge_survives_overflow() -> None:
    a, b = torch.full((2, 4), 1e30), torch.full((4, 3), 1e30)
    found, values = contraction(MODELS["nn"][0], a, b)
    assert torch.allclose(found.gauge(values), torch.full((2, 3), 4e60, dtype=torch.float64), rtol=1e-6)


def test_a_model_that_looks_at_its_numbers_is_no_contraction() -> None:
    def branch(a: Tensor, b: Tensor) -> Tensor:
        return a @ b if float(a.sum()) > 0 else a @ b + 1

    runner = ReferenceRunner()
    runner.model, runner.inputs = Wrap(branch), [R(2, 3), R(3, 4)]
    with torch.no_grad():
        runner.forward({"seed": 0})
        told = runner.examiner.examine({})
    assert "contraction" not in told
    assert told["why_not"] == "what it computes depends on its numbers (_local_scalar_dense)"


def test_a_compiled_model_is_traced_too() -> None:
    """dynamo must not compile the mode that records the model's operators."""
    model = torch.compile(Wrap(lambda a, b: torch.relu(a @ b)), backend="eager")
    found, values = contraction(model, R(5, 7), R(7, 9))
    assert found.activation == "relu"
    assert found.run(values).shape == (5, 9)


def test_the_truth_about_a_model_needs_no_compiler() -> None:
    """An import of torch._dynamo would take a second in every verification."""
    program = """
import sys, torch
from mm32.verify.reference import ReferenceRunner
runner = ReferenceRunner()
runner.model, runner.inputs = torch.nn.Linear(5, 6), [torch.rand(4, 5)]
with torch.no_grad():
    runner.forward({"seed": 0})
    assert "contraction" in runner.examiner.examine({"seed": 0})
    assert runner.float64.truth({"seed": 0})["value"]["exact"].dtype == torch.float64
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "False\n", done.stderr


def test_every_probe_of_a_product_is_filled() -> None:
    assert probes.FILL.keys() == probes.BY_NAME.keys()


def test_every_mode_is_without_the_compiler() -> None:
    for module in pkgutil.walk_packages(mm32.verify.__path__, "mm32.verify."):
        importlib.import_module(module.name)
    ours = [one for one in TorchDispatchMode.__subclasses__() if one.__module__.startswith("mm32.")]
    assert ours == [operator_mode.Mode]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda a, b: torch.softmax(a @ b, -1), "_softmax"),
        (lambda a, b: (a @ b) @ b.T, "more than one product"),
        (lambda a, b: a.sum(), "sum"),
        (lambda a, b: (a * 2) @ b, "mul"),
        (lambda a, b: a + 1, "add"),
        (lambda a, b: (a @ b, a), "not one tensor"),
    ],
)
def test_other_models_are_not_and_say_why(call: Callable[..., object], why: str) -> None:
    with pytest.raises(contractions.NotAContraction, match=why):
        contraction(Wrap(call), R(5, 7), R(7, 9))


def test_a_float64_run_leaves_the_model_alone() -> None:
    model = nn.Sequential(nn.Linear(7, 9), nn.BatchNorm1d(9))
    model.kept, weight = [torch.ones(3)], model[0].weight  # type: ignore[assignment]
    x, before = R(5, 7), {name: t.clone() for name, t in model.state_dict().items()}
    with torch.no_grad(), exact.DoubleModel(model, []) as twin:
        right = twin([x])
        assert torch.equal(right, twin([x]))
        assert model.kept[0].dtype == torch.float64  # type: ignore[index,union-attr]
    assert right.dtype == torch.float64
    assert model[0].weight is weight
    assert model.kept[0].dtype == torch.float32  # type: ignore[index,union-attr]
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert torch.allclose(right.float(), model(x), atol=1e-5)


@pytest.mark.parametrize("name", ["nn", "tt", "bmm", "linear"])
def test_probes_ask_what_they_say(name: str) -> None:
    model, inputs, _, _ = MODELS[name]
    found, values = contraction(model, *inputs)
    with torch.no_grad():
        filled = {p.name: probes.fill(p, found, values, 3) for p in probes.PROBES}
        for out in filled.values():
            assert [t.stride() for t in out] == [t.stride() for t in values]
        a, b = found.views(filled["selects A"])
        assert torch.equal(b.sum(-2), torch.ones(b.shape[:-2] + b.shape[-1:]))
        assert bool((a.abs() >= 1).all())
        a, b = found.views(filled["selects B"])
        assert torch.equal(a.sum(-1), torch.ones(a.shape[:-1]))
        for t in filled["integers"]:
            assert torch.equal(t, t.round())
            assert float(t.abs().max()) <= 8
        exact = found.run([t.double() for t in filled["integers"]])
        assert torch.equal(found.run(filled["integers"]).double(), exact)
        a, b = found.views(filled["NaN and Inf"])
        batch = a.shape[0] if a.dim() == 3 else 1
        assert (int(a.isnan().sum()), int((a == torch.inf).sum()), int((b == -torch.inf).sum())) == (batch,) * 3
        # TF32 must fail where entries are judged one by one: it has 11 bits, and the bound is 4u.
        for which in ("selects A", "selects B"):
            right, rough = found.run(filled[which]), found.run(filled[which], contractions.tf32, contractions.tf32)
            nonzero = right != 0
            assert float(((rough - right)[nonzero] / right[nonzero]).abs().max()) > 100 * probes.FEW * 2**-24


def test_probes_do_not_write_over_shared_operands() -> None:
    model = Wrap(lambda a: a @ a.T)
    found, values = contraction(model, R(5, 7))
    with pytest.raises(probes.CannotProbe, match="one tensor"):
        probes.fill(probes.BY_NAME["randn"], found, values, 0)


def test_inexact_probes_are_left_out() -> None:
    assert probes.skip_reason(probes.BY_NAME["integers"], "gelu", True) == "not exact behind gelu"
    assert probes.skip_reason(probes.BY_NAME["integers"], "relu", True) is None
    assert probes.skip_reason(probes.BY_NAME["selects A"], None, False) == "for fp32 only"


# ---------------------------------------------------------------------------------------------------------- --kernel


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(7, 9)
        self.act = nn.GELU(approximate="tanh")
        self.w = nn.Parameter(R(9, 4))
        self.b = nn.Parameter(R(4))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.sigmoid(self.act(self.first(x)) @ self.w + self.b)
        return F.leaky_relu(torch.matmul(y, y.T), 0.5)


def test_matmuls_are_rewritten_with_their_epilogue() -> None:
    calls = []

    def matmul(a: Tensor, b: Tensor, **options: object) -> Tensor:
        calls.append(("matmul", tuple(a.shape), tuple(b.shape), options.pop("activation", None), options.pop("kernel")))
        bias = options.pop("bias", None)
        assert not options
        out = a @ b
        return torch.sigmoid(out + bias) if bias is not None else out

    def linear(x: Tensor, w: Tensor, **options: object) -> Tensor:
        calls.append(("linear", tuple(x.shape), tuple(w.shape), options.pop("activation", None), options.pop("kernel")))
        return F.gelu(F.linear(x, w, options.pop("bias")), approximate="tanh")  # type: ignore[arg-type]

    torch.manual_seed(0)
    model, x = Net(), R(5, 7)
    new = rewrite.rewrite(model, "naive", matmul, linear)
    assert torch.equal(new(x), model(x))
    assert calls == [
        ("linear", (5, 7), (9, 7), "gelu_tanh", "naive"),
        ("matmul", (5, 9), (9, 4), "sigmoid", "naive"),
        ("matmul", (5, 4), (4, 5), None, "naive"),  # the library does not have this slope, so it stays torch's
    ]
    assert set(new.state_dict()) == set(model.state_dict())


def test_what_cannot_be_rewritten_says_so() -> None:
    with pytest.raises(rewrite.CannotRewrite, match="holds no matmul"):
        rewrite.rewrite(nn.ReLU(), "naive", torch.matmul, F.linear)

    class Branches(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x @ x if x.sum() > 0 else x

    with pytest.raises(rewrite.CannotRewrite, match=r"cannot be traced by torch\.fx"):
        rewrite.rewrite(Branches(), "naive", torch.matmul, F.linear)
