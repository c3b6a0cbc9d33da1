"""mm32.nn: layers that are torch.nn.Linear's in all but how they compute, and what replace_linear does to a model."""

from __future__ import annotations

import copy
import io
import logging
import pickle
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import mm32
from gpu_support import assert_close, reference
from mm32 import cpu, ops
from mm32 import nn as layers
from mm32.activations import ACTIVATIONS, names

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
MODULES: dict[str, Callable[[], nn.Module]] = {
    activation.name: partial(activation.module, **activation.options) for activation in ACTIVATIONS
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """What the layers ask of mm32.linear: the activation."""
    seen: list[dict] = []
    real = ops.linear

    def linear(x: torch.Tensor, weight: object, bias: object = None, **options: object) -> torch.Tensor:
        seen.append({"activation": options.get("activation")})
        return real(x, weight, bias, **options)

    monkeypatch.setattr(ops, "linear", linear)
    return seen


@pytest.fixture
def matmuls(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """What the layers ask of mm32.matmul and mm32.linear: whether the weight was packed."""
    seen: list[dict] = []

    def noted(real: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def product(a: torch.Tensor, b: object, *rest: object, **options: object) -> torch.Tensor:
            seen.append({"packed": isinstance(b, mm32.PackedOperand)})
            return real(a, b, *rest, **options)

        return product

    for name in ("matmul", "linear"):
        monkeypatch.setattr(ops, name, noted(getattr(ops, name)))
    return seen


def close(one: torch.Tensor, two: torch.Tensor) -> None:
    torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)


class Block(nn.Module):
    """A model with a layer of every kind: in sequences and alone, shared, with and without bias, one inside another."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(300, 40), nn.GELU(), nn.Linear(40, 40, bias=False), nn.Dropout(0.0), nn.Linear(40, 300)
        )
        self.inner = nn.ModuleDict({"gate": nn.Linear(300, 300), "more": nn.Sequential(nn.Linear(300, 300), nn.SiLU())})
        self.head = nn.Linear(300, 7)
        self.tied = nn.Linear(300, 7)
        self.tied.weight = self.head.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.net(x)
        x = self.inner["gate"](x).sigmoid() * self.inner["more"](x)
        return self.head(x) + self.tied(x)


# ---------------------------------------------------------------------------------------------------------------------
# The layer


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("activation", [None, *names()])
@pytest.mark.parametrize("bias", [True, False])
def test_forward(bias: bool, activation: str | None, device: str, seed: int) -> None:
    layer = mm32.nn.Linear(300, 7, bias, device=device, activation=activation)
    for shape in ((300,), (5, 300), (2, 3, 300), (0, 300)):
        x = torch.randn(shape, device=device)
        with torch.no_grad():
            expected = reference(x, layer.weight.T, layer.bias, activation)
            for mode in (layer.train, layer.eval):
                mode()
                assert_close(layer(x), *expected)
        got = layer(x)
        assert got.requires_grad
        assert_close(got.detach(), *expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("activation", [None, *names()])
def test_gradients_are_those_of_the_modules(activation: str | None, device: str, seed: int) -> None:
    linear = nn.Linear(20, 7, device=device)
    layer = mm32.nn.Linear(20, 7, device=device, activation=activation)
    layer.load_state_dict(linear.state_dict())
    x, weight = torch.randn(5, 20, device=device, requires_grad=True), torch.randn(5, 7, device=device)
    wanted = torch.autograd.grad((cpu.activate(linear(x), activation) * weight).sum(), (x, *linear.parameters()))
    for got, expected in zip(
        torch.autograd.grad((layer(x) * weight).sum(), (x, *layer.parameters())), wanted, strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_the_activation_is_fused_where_no_gradient_is_needed(calls: list[dict], seed: int) -> None:
    layer, x = mm32.nn.Linear(20, 7, activation="relu"), torch.randn(5, 20)
    layer(x)
    with torch.no_grad():
        layer(x)
    layer.requires_grad_(False)(x)
    layer(x.clone().requires_grad_())
    assert [c["activation"] for c in calls] == [None, "relu", "relu", None]


def test_arguments_are_torchs() -> None:
    layer = mm32.nn.Linear(3, 4, False, "meta", torch.float16, activation="silu")
    assert isinstance(layer, nn.Linear)
    assert (layer.weight.shape, layer.bias, layer.weight.dtype) == ((4, 3), None, torch.float16)
    assert layer.weight.device.type == "meta"
    assert repr(layer) == "Linear(in_features=3, out_features=4, bias=False, activation='silu')"
    assert repr(mm32.nn.Linear(3, 4)) == repr(nn.Linear(3, 4))
    with pytest.raises(ValueError, match="unknown activation 'swish'"):
        mm32.nn.Linear(3, 4, activation="swish")
    torch.manual_seed(3)
    one = mm32.nn.Linear(3, 4)
    torch.manual_seed(3)
    assert torch.equal(one.weight, nn.Linear(3, 4).weight)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes_are_torchs(dtype: torch.dtype, device: str, calls: list[dict], seed: int) -> None:
    layer = mm32.nn.Linear(20, 7, activation="tanh", device=device).to(dtype).eval()
    x = torch.randn(5, 20, dtype=dtype, device=device)
    with torch.no_grad():
        got = layer(x)
        assert got.dtype == dtype
        assert torch.equal(got, torch.tanh(nn.functional.linear(x, layer.weight, layer.bias)))
    with pytest.raises(RuntimeError, match="same dtype"):
        layer(x.float())
    assert calls == []


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_is_torchs(device: str, calls: list[dict], seed: int) -> None:
    layer, x = mm32.nn.Linear(20, 7, activation="relu", device=device), torch.randn(5, 20, device=device)
    with torch.autocast(device, torch.bfloat16):
        got = layer(x)
        assert torch.equal(got, torch.relu(nn.functional.linear(x, layer.weight, layer.bias)))
    assert got.dtype == torch.bfloat16
    assert calls == []


@pytest.mark.parametrize("other", [nn.Linear, mm32.nn.Linear])
def test_what_is_no_tensor_is_torchs_error(other: type[nn.Linear]) -> None:
    with pytest.raises(TypeError, match=r"linear\(\): argument 'input' \(position 1\) must be Tensor, not list"):
        other(3, 4)([1.0, 2.0, 3.0])


class OnlyLinear(torch.Tensor):
    """A wrapper that implements torch.nn.functional.linear and no product else, as quantized weights do."""

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> torch.Tensor:
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, device=held.device)

    def __init__(self, held: torch.Tensor) -> None:
        self.held = held

    @classmethod
    def __torch_function__(cls, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        if func is nn.functional.linear:
            return func(args[0], args[1].held, *args[2:])
        return super().__torch_function__(func, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        if func is torch.ops.aten.detach.default:
            return cls(args[0].held)
        raise NotImplementedError(f"{func} of a wrapper that has none")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("activation", [None, "relu"])
def test_weights_that_are_subclasses_are_torchs(
    activation: str | None, device: str, calls: list[dict], seed: int
) -> None:
    layer, x = mm32.nn.Linear(20, 7, device=device, activation=activation).eval(), torch.randn(5, 20, device=device)
    with torch.no_grad():
        expected = layer(x)
        layer.weight = nn.Parameter(OnlyLinear(layer.weight.detach()), requires_grad=False)
        calls.clear()
        close(layer(x), expected)
    close(layer(x), expected)
    assert calls == []


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_inputs_are_torchs(layout: torch.layout, device: str, calls: list[dict], seed: int) -> None:
    layer = mm32.nn.Linear(20, 7, device=device)
    rows = [torch.randn(n, 20, device=device) for n in (2, 5)]
    with torch.no_grad():
        results = layer(torch.nested.nested_tensor(rows, layout=layout)).unbind()
        for result, x in zip(results, rows, strict=True):
            close(result, x @ layer.weight.T + layer.bias)
    assert calls == []


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sizes", [(0, 7), (300, 0), (0, 0), (1, 1)])
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_sizes_of_nothing(sizes: tuple[int, int], device: str, seed: int) -> None:
    layer, linear = mm32.nn.Linear(*sizes, device=device, activation="relu"), nn.Linear(*sizes, device=device)
    linear.load_state_dict(layer.state_dict())
    for shape in ((3,), (), (0,), (2, 0)):
        x = torch.randn(*shape, sizes[0], device=device, requires_grad=True)
        expected = torch.relu(linear(x))
        for mode in (layer.train, layer.eval):
            mode()
            close(layer(x), expected)
            with torch.no_grad():
                close(layer(x), expected)
        (got,), (wanted,) = (torch.autograd.grad(y.sum(), x) for y in (layer(x), expected))
        close(got, wanted)


def test_meta_device() -> None:
    layer = mm32.nn.Linear(20, 7, device="meta", activation="relu").eval()
    with torch.no_grad():
        assert layer(torch.empty(5, 20, device="meta")).shape == (5, 7)
        assert layer(torch.empty(0, 20, device="meta")).shape == (0, 7)


# ---------------------------------------------------------------------------------------------------------------------
# Nothing is kept: a result is right after any write


@pytest.fixture
def packings(monkeypatch: pytest.MonkeyPatch) -> list[mm32.PackedOperand]:
    """Every packing that a layer asks for."""
    made: list[mm32.PackedOperand] = []
    real = mm32.pack

    def pack(t: torch.Tensor, **options: object) -> mm32.PackedOperand:
        made.append(real(t, **options))
        return made[-1]

    monkeypatch.setattr(layers, "pack", pack)
    return made


def replace_parameter(layer: nn.Linear) -> None:
    layer.weight = nn.Parameter(torch.randn_like(layer.weight))


def replace_data(layer: nn.Linear) -> None:
    layer.weight.data = torch.randn_like(layer.weight)


def other_strides(layer: nn.Linear) -> None:
    layer.weight.data = torch.randn_like(layer.weight).T.contiguous().T


def by_numpy(layer: nn.Linear) -> None:
    """What torch cannot see at all."""
    if layer.weight.is_cuda:
        layer.weight.data.neg_()
    else:
        layer.weight.detach().numpy()[:] *= -1


# What a frozen layer sees, and packs its weight again.
COUNTED: dict[str, Callable[[nn.Linear], object]] = {
    "in_place": lambda layer: layer.weight.mul_(-1),
    "element": lambda layer: layer.weight[0].zero_(),
    "loaded": lambda layer: layer.load_state_dict({k: torch.randn_like(v) for k, v in layer.state_dict().items()}),
    "assigned": lambda layer: layer.load_state_dict(
        {k: torch.randn_like(v) for k, v in layer.state_dict().items()}, assign=True
    ),
    "parameter": replace_parameter,
    "data": replace_data,
    "strides": other_strides,
    "dtype_and_back": lambda layer: layer.double().float(),
    "reset": lambda layer: layer.reset_parameters(),
}
UNCOUNTED: dict[str, Callable[[nn.Linear], object]] = {
    "data_copy": lambda layer: layer.weight.data.copy_(torch.randn_like(layer.weight)),
    "data_in_place": lambda layer: layer.weight.data.mul_(3),
    "numpy": by_numpy,
    "foreach": lambda layer: torch._foreach_mul_([layer.weight.data], -2.0),
}
CHANGES = {**COUNTED, **UNCOUNTED}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("change", CHANGES)
def test_right_after_any_write(change: str, device: str, packings: list, seed: int) -> None:
    layer, x = mm32.nn.Linear(300, 7, device=device).eval(), torch.randn(5, 300, device=device)
    with torch.no_grad():
        close(layer(x), x @ layer.weight.T + layer.bias)
        CHANGES[change](layer)
        for _ in range(2):
            close(layer(x), x @ layer.weight.T + layer.bias)
    assert packings == []


@pytest.mark.parametrize("device", DEVICES)
def test_an_ema_swap_between_two_evaluations(device: str, packings: list, seed: int) -> None:
    """As EMA libraries do it: averaged weights in for an evaluation, by writes that torch does not count, and out again."""
    model, x = mm32.replace_linear(Block()).to(device).eval(), torch.randn(5, 300, device=device)
    plain = Block().to(device).eval()
    averaged = {name: torch.randn_like(p) * 0.1 for name, p in model.named_parameters()}
    own = {name: p.detach().clone() for name, p in model.named_parameters()}
    with torch.no_grad():
        for weights in (own, averaged, own):
            for name, p in model.named_parameters():
                p.data.copy_(weights[name])
            plain.load_state_dict(weights, strict=False)
            plain.tied.weight = plain.head.weight
            close(model(x), plain(x))
    assert packings == []


@pytest.mark.parametrize("device", DEVICES)
def test_averaged_models(device: str, seed: int) -> None:
    """torch.optim.swa_utils: a deep copy that is written to after each step, and swapped in."""
    model, x = mm32.replace_linear(Block()).to(device), torch.randn(5, 300, device=device)
    averaged = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5), use_buffers=True
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        model.train()(x).square().mean().backward()
        optimizer.step()
        averaged.update_parameters(model)
        averaged.eval()
        plain = Block().to(device).eval()
        plain.load_state_dict(averaged.module.state_dict())
        with torch.no_grad():
            close(averaged(x), plain(x))
    with torch.no_grad():
        mm32.freeze(averaged)
        frozen = averaged(x)
        averaged.update_parameters(model)  # by torch._foreach_lerp_, which torch does not count on a GPU
        mm32.freeze(averaged)
        plain.load_state_dict(averaged.module.state_dict())
        close(averaged(x), plain(x))
        assert not torch.allclose(averaged(x), frozen, rtol=1e-6, atol=1e-7)


@pytest.mark.gpu
@pytest.mark.parametrize("how", ["plain", "frozen_again"])
def test_a_replayed_graph_writes_the_weight(how: str, seed: int) -> None:
    layer, x = mm32.nn.Linear(700, 300, device="cuda").eval(), torch.randn(65, 700, device="cuda")
    weights = torch.empty_like(layer.weight)
    with torch.no_grad():
        layer(x), layer.weight.copy_(weights)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            layer.weight.copy_(weights)
        for _ in range(3):
            mm32.unfreeze(layer)
            weights.copy_(torch.randn_like(weights))
            graph.replay()
            if how == "frozen_again":
                mm32.freeze(layer)
            for _ in range(2):
                assert_close(layer(x), *reference(x, layer.weight.T, layer.bias))


# ---------------------------------------------------------------------------------------------------------------------
# Frozen. On the CPU an operand "packed" is the tensor alone: when it is made and let go is the same.


def frozen_layer(*sizes: int, **options: object) -> mm32.nn.Linear:
    return mm32.freeze(mm32.nn.Linear(*sizes, **options).eval())


@pytest.mark.parametrize("device", DEVICES)
def test_packed_once(device: str, packings: list, matmuls: list[dict], seed: int) -> None:
    layer, x = mm32.nn.Linear(300, 7, device=device).eval(), torch.randn(5, 300, device=device)
    assert mm32.freeze(layer) is layer
    assert len(packings) == 1
    with torch.no_grad():
        for _ in range(3):
            close(layer(x), x @ layer.weight.T + layer.bias)
        with torch.inference_mode():
            layer(x)
    layer.requires_grad_(False)(x)
    assert len(packings) == 1
    assert packings[0].shape == (300, 7)
    assert [c["packed"] for c in matmuls] == [True] * 5


@pytest.mark.parametrize("device", DEVICES)
def test_the_weight_itself_where_gradients_are_recorded(
    device: str, packings: list, matmuls: list[dict], seed: int
) -> None:
    layer, x = frozen_layer(300, 7, device=device), torch.randn(5, 300, device=device)
    layer(x).sum().backward()
    close(layer.weight.grad, x.sum(0).expand(7, 300))
    layer.requires_grad_(False)(x.requires_grad_())
    assert [c["packed"] for c in matmuls] == [False] * 2


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("how", ["unfreeze", "train", "copy", "deepcopy", "pickle"])
def test_let_go(how: str, device: str, packings: list, matmuls: list[dict], seed: int) -> None:
    layer, x = frozen_layer(300, 7, device=device), torch.randn(5, 300, device=device)
    other = {
        "unfreeze": mm32.unfreeze,
        "train": lambda layer: layer.train().eval(),
        "copy": copy.copy,
        "deepcopy": copy.deepcopy,
        "pickle": lambda layer: pickle.loads(pickle.dumps(layer)),
    }[how](layer)
    matmuls.clear()
    with torch.no_grad():
        for change in UNCOUNTED.values():
            change(other)
            close(other(x), x @ other.weight.T + other.bias)
    assert not any(c["packed"] for c in matmuls)
    assert len(packings) == 1
    assert (layer._kept is None) == (how in ("unfreeze", "train"))
    assert other._kept is None


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("change", COUNTED)
def test_packed_again_after_a_change(change: str, device: str, packings: list, matmuls: list[dict], seed: int) -> None:
    layer, x = frozen_layer(300, 7, device=device), torch.randn(5, 300, device=device)
    with torch.no_grad():
        layer(x)
        CHANGES[change](layer)
        for _ in range(2):
            close(layer(x), x @ layer.weight.T + layer.bias)
    assert len(packings) == 2
    assert all(c["packed"] for c in matmuls)


@pytest.mark.parametrize("device", DEVICES)
def test_an_optimizer_step_is_seen(device: str, packings: list, seed: int) -> None:
    """Evaluation between steps of a model that stays in eval mode: nothing but the weight's count tells."""
    layer, x = frozen_layer(300, 7, device=device), torch.randn(5, 300, device=device)
    optimizer = torch.optim.Adam(layer.parameters(), 0.1)
    for _ in range(3):
        with torch.no_grad():
            close(layer(x), x @ layer.weight.T + layer.bias)
        layer(x).sum().backward()
        optimizer.step()
    assert len(packings) == 3


class Quiet(torch.optim.SGD):
    """Whose steps torch does not count, as it does not those of fused optimizers on a GPU."""

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.data.neg_()


def test_a_step_is_seen_by_every_layer_that_has_the_weight(packings: list, seed: int) -> None:
    """Also of a weight that a call was given, and not by layers that are no longer frozen or have another."""
    one, two, other = (frozen_layer(300, 7, bias=False) for _ in range(3))
    two.weight = one.weight
    given, x = nn.Parameter(torch.randn(7, 300)), torch.randn(5, 300)
    with torch.no_grad():
        for layer in (one, two, other):
            layer(x)
        torch.func.functional_call(other, {"weight": given}, x)
        before = len(packings)
        Quiet([one.weight], 0.1).step()
        for layer in (one, two):
            close(layer(x), x @ one.weight.T)
        torch.func.functional_call(other, {"weight": given}, x)
        assert len(packings) == before + 2
        Quiet([given], 0.1).step()
        close(torch.func.functional_call(other, {"weight": given}, x), x @ given.T)
    assert len(packings) == before + 3
    steps = one._steps
    mm32.unfreeze(one)
    Quiet([one.weight], 0.1).step()
    assert (one._steps, two._steps) == (steps, steps + 1)


@pytest.mark.parametrize("frozen", [False, True], ids=["unfrozen_again", "frozen"])
def test_torch_can_swap_a_frozen_weight(frozen: bool, packings: list, seed: int) -> None:
    """As Module.to does with DTensors, and with all parameters where this is set: two layers have one weight here."""
    model = nn.Sequential(mm32.nn.Linear(300, 300, bias=False), mm32.nn.Linear(300, 300, bias=False)).eval()
    model[1].weight, x = model[0].weight, torch.randn(5, 300)
    mm32.freeze(model)
    with torch.no_grad():
        expected = model(x)
        if not frozen:
            mm32.unfreeze(model)
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            model.double().float()
        finally:
            torch.__future__.set_swap_module_params_on_conversion(False)
        before = len(packings)
        close(model(x), expected)
    assert len(packings) == before + 2 * frozen


def test_a_change_of_the_bias_needs_no_packing(packings: list, seed: int) -> None:
    layer, x = frozen_layer(20, 7), torch.randn(5, 20)
    with torch.no_grad():
        layer(x)
        layer.bias.add_(5)
        close(layer(x), x @ layer.weight.T + layer.bias)
    assert len(packings) == 1


def test_a_computed_weight_is_not_kept(packings: list, caplog: pytest.LogCaptureFixture, seed: int) -> None:
    """Parametrizations make a new weight for each call, which may lie where the last one lay."""
    one, two = (torch.nn.utils.parametrizations.weight_norm(mm32.nn.Linear(20, 7)).eval() for _ in range(2))
    torch.nn.utils.parametrize.remove_parametrizations(two, "weight")
    x = torch.randn(5, 20)
    with caplog.at_level(logging.WARNING, "mm32"):
        mm32.freeze(nn.ModuleDict({"one": one, "two": two}))
    assert [record.getMessage() for record in caplog.records] == [
        "mm32.freeze did not pack one: the weight is computed for each call, or is a subclass of torch.Tensor",
        "mm32.freeze did not pack two: kernels are for CUDA tensors, and this is on cpu",
    ]
    with torch.no_grad():
        for factor in (1.0, 2.0, 3.0):
            one.parametrizations.weight.original0.fill_(factor)
            close(one(x), x @ one.weight.T + one.bias)
    assert len(packings) == 1


def test_functional_calls_use_the_weights_they_are_given(packings: list, seed: int) -> None:
    layer, x = frozen_layer(20, 7), torch.randn(5, 20)
    with torch.no_grad():
        layer(x)
        for _ in range(3):
            other = {"weight": torch.randn(7, 20), "bias": torch.randn(7)}
            close(torch.func.functional_call(layer, other, x), x @ other["weight"].T + other["bias"])
        close(layer(x), x @ layer.weight.T + layer.bias)
    assert len(packings) == 1


def test_inference_tensors_are_not_kept(packings: list, seed: int) -> None:
    """Their changes are not counted."""
    with torch.inference_mode():
        layer, x = frozen_layer(20, 7), torch.randn(5, 20)
        layer(x)
        layer.weight.zero_()
        close(layer(x), layer.bias.expand(5, 7))
    assert packings == []


def test_a_weight_that_is_no_matrix_is_not_packed(packings: list, caplog: pytest.LogCaptureFixture) -> None:
    """As FSDP1 leaves them between calls."""
    layer = mm32.nn.Linear(3, 3).eval()
    layer.weight = nn.Parameter(torch.randn(9))
    with caplog.at_level(logging.WARNING, "mm32"):
        mm32.freeze(layer)
    assert caplog.messages == [
        "mm32.freeze did not pack the model: the weight is no matrix but of shape (9,), as one that is sharded flat"
    ]
    assert packings == []


def test_a_weight_becomes_an_inference_tensor(packings: list, seed: int) -> None:
    layer, x = frozen_layer(20, 7), torch.randn(5, 20)
    with torch.inference_mode():
        layer.weight = nn.Parameter(torch.randn(7, 20))
        for _ in range(2):
            close(layer(x), x @ layer.weight.T + layer.bias)
            layer.weight.mul_(-1)
    assert len(packings) == 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("again", [copy.deepcopy, copy.copy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_and_state_dicts_leave_it_out(again: Callable, device: str, packings: list, seed: int) -> None:
    layer, x = frozen_layer(300, 7, activation="silu", device=device), torch.randn(5, 300, device=device)
    with torch.no_grad():
        expected = layer(x)
    assert layer._kept is not None
    assert set(layer.state_dict()) == {"weight", "bias"}
    assert len(list(layer.parameters())) == 2
    assert list(layer.buffers()) == []
    other = again(layer)
    assert other._kept is None
    assert other.activation == "silu"
    with torch.no_grad():
        close(other(x), expected)
        other.weight.mul_(2) if again is not copy.copy else None
        assert torch.equal(layer(x), expected)


def test_what_cannot_be_frozen(caplog: pytest.LogCaptureFixture, seed: int) -> None:
    for function in (mm32.freeze, mm32.unfreeze):
        with pytest.raises(TypeError, match=rf"mm32\.{function.__name__} takes a torch\.nn\.Module, got int"):
            function(3)
    model = mm32.replace_linear(Block()).eval()
    model.head.train(), model.net[0].train()
    with pytest.raises(RuntimeError, match=r"in training mode: net\.0, head\. Call model\.eval\(\) first"):
        mm32.freeze(model)
    assert not any(m._frozen for m in model.modules() if isinstance(m, mm32.nn.Linear))
    with caplog.at_level(logging.WARNING, "mm32"):
        mm32.freeze(nn.Sequential(nn.Linear(3, 3)))
    (record,) = caplog.records
    assert record.getMessage() == (
        "mm32.freeze found no mm32.nn.Linear in Sequential: mm32.replace_linear puts them there"
    )
    caplog.clear()
    half = nn.Sequential(mm32.nn.Linear(3, 3).half(), mm32.nn.Linear(3, 3, device="meta")).eval()
    with caplog.at_level(logging.WARNING, "mm32"):
        mm32.freeze(half)
    assert [record.getMessage() for record in caplog.records] == [
        "mm32.freeze did not pack 0: the weight is torch.float16",
        "mm32.freeze did not pack 1: kernels are for CUDA tensors, and this is on meta",
    ]


@pytest.mark.parametrize("device", DEVICES)
def test_a_frozen_model(device: str, packings: list, seed: int) -> None:
    """All of its layers; shared ones once; and the same values as before."""
    model, x = mm32.replace_linear(Block()).to(device).eval(), torch.randn(5, 300, device=device)
    with torch.no_grad():
        expected = model(x)
        mm32.freeze(model)
        close(model(x), expected)
        assert len(packings) == 7
        for p in model.parameters():
            p.data.mul_(-0.5)  # not counted: to freeze it again is how a frozen model sees it
        mm32.freeze(model)
        assert len(packings) == 14
        got = model(x)
        mm32.unfreeze(model)
        close(got, model(x))
        assert not torch.allclose(got, expected)
        for p in model.parameters():
            p.data.mul_(-2)
        close(model(x), expected)
    assert not any(m._frozen or m._kept for m in model.modules() if isinstance(m, mm32.nn.Linear))


def plain(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x @ layer.weight.T + layer.bias)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("before", [False, True], ids=["changed", "packed"])
@pytest.mark.parametrize("transform", ["jvp", "jacfwd", "vmap", "no_grad_inside_grad"])
def test_transforms_leave_nothing_behind(transform: str, before: bool, device: str, packings: list, seed: int) -> None:
    """What is packed inside a transform would be the transform's, and be gone with it."""
    layer = frozen_layer(300, 7, device=device, activation="tanh")
    x, tangent = torch.randn(5, 300, device=device), torch.randn(5, 300, device=device)

    def no_grad_inside(f: Callable) -> Callable:
        def inside(x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                y = f(x)
            return (y * x[:, :7]).sum()

        return inside

    run: Callable[[Callable], object] = {
        "jvp": lambda f: torch.func.jvp(f, (x,), (tangent,)),
        "jacfwd": lambda f: torch.func.jacfwd(f)(x[0]),
        "vmap": lambda f: torch.vmap(f)(x),
        "no_grad_inside_grad": lambda f: torch.func.grad(no_grad_inside(f))(x),
    }[transform]
    with torch.no_grad():
        if not before:  # what is packed is of another weight
            layer.weight.mul_(-1)
        for _ in range(2):
            torch.testing.assert_close(run(layer), run(lambda x: plain(layer, x)), rtol=1e-4, atol=1e-4)
        assert len(packings) == 1
        close(layer(x), plain(layer, x))
    assert len(packings) == 1 + (not before)


def test_an_ensemble_by_functional_call(seed: int) -> None:
    members, x = [frozen_layer(20, 7) for _ in range(3)], torch.randn(5, 20)
    stacked, _ = torch.func.stack_module_state(members)
    skeleton = copy.deepcopy(members[0]).to("meta")
    with torch.no_grad():
        got = torch.vmap(lambda state: torch.func.functional_call(skeleton, state, x))(stacked)
        close(got, torch.stack([member(x) for member in members]))


@pytest.mark.parametrize("device", DEVICES)
def test_a_traced_layer_sees_later_weights(device: str, packings: list, seed: int) -> None:
    """Panels would stay in the graph as they were when it was traced."""
    layer = frozen_layer(300, 7, device=device, activation="tanh")
    x = torch.randn(5, 300, device=device)
    with torch.no_grad():
        layer(x)
        traced = make_fx(lambda x: layer(x))(x)
        assert torch.ops.mm32.matmul.default in [node.target for node in traced.graph.nodes]
        layer.weight.mul_(2)
        close(traced(x), plain(layer, x))
        close(layer(x), plain(layer, x))
    assert len(packings) == 2


def test_fake_tensors_leave_nothing_behind(packings: list, seed: int) -> None:
    layer, x = frozen_layer(20, 7, activation="tanh"), torch.randn(5, 20)
    with torch.no_grad():
        layer.weight.mul_(2)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            assert layer(mode.from_tensor(x)).shape == (5, 7)
        assert len(packings) == 1
        close(layer(x), plain(layer, x))
    assert len(packings) == 2


@pytest.mark.parametrize("device", DEVICES)
def test_threads_that_evaluate_while_one_lets_go(device: str, seed: int) -> None:
    layer, x = frozen_layer(300, 7, device=device, activation="tanh"), torch.randn(5, 300, device=device)
    failures: list[BaseException] = []
    done = threading.Event()

    def work() -> None:
        try:
            with torch.no_grad():
                for _ in range(50):
                    close(layer(x), plain(layer, x))
        except BaseException as error:
            failures.append(error)

    def let_go() -> None:
        while not done.is_set():
            mm32.freeze(layer.train().eval())

    threads, other = [threading.Thread(target=work) for _ in range(3)], threading.Thread(target=let_go)
    for thread in (*threads, other):
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    other.join()
    assert not failures, failures[0]


@pytest.mark.parametrize("activation", [None, "gelu"])
@pytest.mark.parametrize("device", DEVICES)
def test_compiled_without_a_break(device: str, activation: str | None, packings: list, seed: int) -> None:
    torch._dynamo.reset()
    layer, x = frozen_layer(300, 7, device=device, activation=activation), torch.randn(5, 300, device=device)
    packings.clear()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        close(compiled(x), cpu.activate(x @ layer.weight.T + layer.bias, activation))
        layer.weight.mul_(2)
        close(compiled(x), cpu.activate(x @ layer.weight.T + layer.bias, activation))
    assert packings == []
    layer.train()
    x.requires_grad_()
    (got,) = torch.autograd.grad(compiled(x).sum(), x)
    (expected,) = torch.autograd.grad(cpu.activate(x @ layer.weight.T + layer.bias, activation).sum(), x)
    close(got, expected)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("gradients", [False, True])
def test_exported(gradients: bool, strict: bool, packings: list, seed: int) -> None:
    layer, x = frozen_layer(20, 7, activation="relu"), torch.randn(5, 20)
    with torch.set_grad_enabled(gradients):
        layer(x)
        packings.clear()
        program = torch.export.export(layer, (x,), strict=strict)
    assert torch.ops.mm32.matmul.default in [node.target for node in program.graph.nodes]
    assert packings == []
    close(program.module()(x), layer(x))


def test_symbolically_traced(seed: int) -> None:
    """torch.fx's own proxies are no tensors: the layer is torch.nn.functional.linear there."""
    model, x = mm32.replace_linear(nn.Sequential(nn.Linear(20, 7), nn.ReLU())), torch.randn(5, 20)
    close(torch.fx.symbolic_trace(model)(x), model(x))


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("frozen", [False, True])
def test_torchscript(frozen: bool, seed: int) -> None:
    """Scripted and traced, saved and loaded: mm32's operator, with its gradients; the model itself stays what it was."""
    model, x = nn.Sequential(nn.Linear(20, 30), nn.GELU(), nn.Linear(30, 7, bias=False), nn.ReLU()), torch.randn(5, 20)
    mm32.replace_linear(model).eval()
    if frozen:
        mm32.freeze(model)
    for made in (torch.jit.script(model), torch.jit.trace(model, x)):
        file = io.BytesIO()
        torch.jit.save(made, file)
        file.seek(0)
        for other in (made, torch.jit.load(file)):
            assert "mm32::matmul" in str(other.inlined_graph)
            close(other(x), model(x))
            (got,) = torch.autograd.grad(other(x).square().sum(), next(iter(other.parameters())))
            (wanted,) = torch.autograd.grad(model(x).square().sum(), model[0].weight)
            close(got, wanted)
    assert type(model[0]) is mm32.nn.Linear


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_torchscript_of_other_dtypes(seed: int) -> None:
    layer, x = mm32.nn.Linear(20, 7), torch.randn(5, 20)
    half = torch.jit.script(layer).half()
    assert half(x.half()).dtype == torch.float16
    close(half(x.half()).float(), nn.functional.linear(x.half(), half.weight, half.bias).float())


# ---------------------------------------------------------------------------------------------------------------------
# Models


@pytest.mark.parametrize("device", DEVICES)
def test_a_model_computes_the_same(device: str, seed: int) -> None:
    model, x = Block().to(device), torch.randn(5, 300, device=device)
    replaced = copy.deepcopy(model)
    assert mm32.replace_linear(replaced) is replaced
    assert sum(type(m) is mm32.nn.Linear for m in replaced.modules()) == 7
    assert not any(type(m) is nn.Linear for m in replaced.modules())
    close(replaced(x), model(x))
    with torch.no_grad():
        close(replaced.eval()(x), model.eval()(x))
        close(replaced(x), model(x))
    for one, two in zip(replaced.parameters(), model.parameters(), strict=True):
        wanted = torch.autograd.grad(model.train()(x).sum(), two)[0]
        torch.testing.assert_close(torch.autograd.grad(replaced.train()(x).sum(), one)[0], wanted, rtol=1e-4, atol=1e-4)


def test_state_dicts_fit_both_ways(seed: int) -> None:
    model, replaced, x = Block(), mm32.replace_linear(Block()), torch.randn(5, 300)
    assert list(model.state_dict()) == list(replaced.state_dict())
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    replaced.load_state_dict(torch.load(buffer))
    close(replaced(x), model(x))
    other = Block()
    other.load_state_dict(replaced.state_dict())
    close(other(x), model(x))


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_replaced_model_is_copied_whole(again: Callable, seed: int) -> None:
    model, x = mm32.replace_linear(Block()).eval(), torch.randn(5, 300)
    with torch.no_grad():
        expected = model(x)
        other = again(model)
        assert torch.equal(other(x), expected)
    assert other.head.weight is other.tied.weight
    assert other.net[0].activation == "gelu"


def test_modules_and_weights_stay_what_they_are(seed: int) -> None:
    model = Block()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before = dict(model.named_modules())
    parameters = dict(model.named_parameters())
    mm32.replace_linear(model)
    assert all(p is parameters[name] for name, p in model.named_parameters())
    assert model.tied.weight is model.head.weight
    for name, module in model.named_modules():
        assert module is before[name] or isinstance(module, nn.Identity)
    old = model.head.weight.detach().clone()
    model(torch.randn(5, 300)).sum().backward()
    optimizer.step()
    assert not torch.equal(model.head.weight, old)


@pytest.mark.parametrize("name", MODULES)
def test_activations_are_fused(name: str, calls: list[dict], seed: int) -> None:
    model, x = nn.Sequential(nn.Linear(20, 30), MODULES[name](), nn.Linear(30, 7)).eval(), torch.randn(5, 20)
    with torch.no_grad():
        expected = model(x)
        keys = list(model.state_dict())
        mm32.replace_linear(model)
        close(model(x), expected)
    assert [c["activation"] for c in calls] == [name, None]
    assert type(model[1]) is nn.Identity
    assert not model[1].training
    assert list(model.state_dict()) == keys
    assert len(model) == 3


class Watched(nn.Sequential):
    """A Sequential that keeps what lies between its modules."""

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:  # type: ignore[override]
        return [x := module(x) for module in self]


def with_hook(method: str, which: int) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        getattr(model[which], method)(lambda *args: None)
        return model

    return make


class Square(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x


def sharing_a_layer() -> nn.Module:
    layer = nn.Linear(8, 8)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.Tanh())


NOT_FUSED: dict[str, Callable[[], nn.Module]] = {
    "subclass_with_a_forward": lambda: Watched(nn.Linear(8, 8), nn.ReLU()),
    "another_slope": lambda: nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(0.2)),
    "not_fused_by_mm32": lambda: nn.Sequential(nn.Linear(8, 8), Square()),
    "not_directly_behind": lambda: nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.0), nn.ReLU()),
    "used_twice": sharing_a_layer,
    "forward_hook": with_hook("register_forward_hook", 0),
    "backward_hook": with_hook("register_full_backward_hook", 0),
    "forward_hook_behind": with_hook("register_forward_hook", 1),
    "forward_pre_hook_behind": with_hook("register_forward_pre_hook", 1),
    "in_a_list": lambda: nn.Sequential(nn.Sequential(nn.Linear(8, 8)), nn.ReLU()),
}


@pytest.mark.parametrize("case", NOT_FUSED)
def test_what_is_not_fused(case: str, seed: int) -> None:
    model = NOT_FUSED[case]()
    expected = model(x := torch.randn(5, 8))
    mm32.replace_linear(model)
    found = [m for m in model.modules() if isinstance(m, nn.Linear)]
    assert all(type(m) is mm32.nn.Linear and m.activation is None for m in found)
    assert not any(isinstance(m, nn.Identity) for m in model.modules())
    torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-5)


def test_hooks_that_see_no_difference_do_not_keep_from_fusing(seed: int) -> None:
    model, seen = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), []
    model[0].register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    model.register_forward_hook(lambda module, args, result: seen.append(result))
    expected = model(x := torch.randn(5, 8))
    seen.clear()
    mm32.replace_linear(model)
    assert model[0].activation == "relu"
    assert torch.equal(model(x), seen[1])
    assert seen[0] is x
    close(seen[1], expected)


def test_hooks_stay(seed: int) -> None:
    model, seen = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3)), []
    model[1].register_forward_hook(lambda module, args, result: seen.append(type(module)))
    mm32.replace_linear(model)(torch.randn(5, 8))
    assert seen == [mm32.nn.Linear]


def test_a_shared_activation_stays_where_it_is_used_alone(seed: int) -> None:
    act = nn.ReLU()
    model = nn.ModuleDict({"net": nn.Sequential(nn.Linear(8, 8), act), "alone": act})
    mm32.replace_linear(model)
    assert model["alone"] is act
    assert type(model["net"][1]) is nn.Identity


def test_the_filter(seed: int) -> None:
    asked = []

    def wanted(name: str, module: nn.Linear) -> bool:
        asked.append((name, type(module)))
        return name.startswith("net.") and module.bias is not None

    model = mm32.replace_linear(Block(), wanted)
    taken = [name for name, m in model.named_modules() if type(m) is mm32.nn.Linear]
    assert taken == ["net.0", "net.4"]
    assert sorted(asked) == sorted(
        (name, nn.Linear) for name in ("net.0", "net.2", "net.4", "inner.gate", "inner.more.0", "head", "tied")
    )
    assert type(model.net[1]) is nn.Identity
    assert type(model.inner["more"][1]) is nn.SiLU


class Special(nn.Linear):
    pass


def test_what_is_left_is_named(caplog: pytest.LogCaptureFixture, seed: int) -> None:
    model = nn.ModuleDict(
        {
            "special": Special(4, 4),
            "attention": nn.MultiheadAttention(8, 2),
            "patched": nn.Linear(4, 4),
            "plain": nn.Linear(4, 4),
            "ours": mm32.nn.Linear(4, 4),
        }
    )
    model["patched"].forward = lambda x: x
    with caplog.at_level(logging.WARNING, "mm32"):
        mm32.replace_linear(model)
    assert type(model["special"]) is Special
    assert type(model["patched"]) is nn.Linear
    assert type(model["plain"]) is mm32.nn.Linear
    (record,) = caplog.records
    assert record.getMessage() == (
        "mm32.replace_linear left as they are: special (Special, a subclass of torch.nn.Linear), attention.out_proj "
        "(NonDynamicallyQuantizableLinear, a subclass of torch.nn.Linear), patched (its forward was replaced)"
    )
    caplog.clear()
    mm32.replace_linear(Block())
    assert caplog.records == []


def test_what_is_no_model() -> None:
    with pytest.raises(TypeError, match=r"mm32\.replace_linear takes a torch\.nn\.Module, got int"):
        mm32.replace_linear(3)
    with pytest.raises(TypeError, match="filter must be a function or None, got str"):
        mm32.replace_linear(nn.Linear(2, 2), "head")


def test_the_model_may_be_the_layer(seed: int) -> None:
    layer, x = nn.Linear(8, 3), torch.randn(5, 8)
    expected = layer(x)
    assert mm32.replace_linear(layer) is layer
    assert type(layer) is mm32.nn.Linear
    close(layer(x), expected)


def test_twice_is_once(seed: int) -> None:
    model = mm32.replace_linear(mm32.replace_linear(Block()))
    assert model.net[0].activation == "gelu"
    assert model.net[2].activation is None


def test_a_transformer_layer(seed: int) -> None:
    model = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    x = torch.randn(2, 5, 16)
    train, evaluated = model(x), model.eval()(x)
    mm32.replace_linear(model.train())
    close(model(x), train)
    with torch.no_grad():
        close(model.eval()(x), evaluated)


@pytest.mark.parametrize("device", DEVICES)
def test_a_model_compiles_whole(device: str, seed: int) -> None:
    torch._dynamo.reset()
    model, x = mm32.replace_linear(Block()).to(device).eval(), torch.randn(5, 300, device=device)
    with torch.no_grad():
        close(torch.compile(model, fullgraph=True, backend="aot_eager")(x), model(x))


def compilations(model: nn.Module, other: nn.Module, dynamic: bool | None, device: str) -> int:
    """How often a model is compiled for several sizes, trained and evaluated in turn; gradients and values are `other`'s."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, backend=counter, dynamic=dynamic)
    for rows in (5, 6, 9):
        x = torch.randn(rows, 300, device=device)
        for net in (compiled, other):
            net.train()
            net.zero_grad()
            net(x).square().sum().backward()
        for one, two in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(one.grad, two.grad, rtol=1e-3, atol=1e-3)
        with torch.no_grad():
            close(compiled.eval()(x), other.eval()(x))
    return counter.frame_count


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dynamic", [None, *(pytest.param(x, marks=pytest.mark.slow) for x in (False, True))])
def test_a_model_trains_compiled_as_often_as_torchs(dynamic: bool | None, device: str, seed: int) -> None:
    model = Block().to(device)
    replaced = mm32.replace_linear(copy.deepcopy(model))
    ours = compilations(replaced, copy.deepcopy(replaced), dynamic, device)
    assert ours == compilations(model, copy.deepcopy(model), dynamic, device)
    torch._dynamo.reset()


# On a CPU test_compiled.py has inductor, on operators.
@pytest.mark.compiler
@pytest.mark.parametrize("device", [pytest.param("cpu", marks=pytest.mark.slow), DEVICES[1]])
def test_a_model_by_inductor(device: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    model, x = mm32.replace_linear(Block()).to(device), torch.randn(5, 300, device=device)
    compiled = torch.compile(model, fullgraph=True)
    close(compiled(x), model(x))
    with torch.no_grad():
        close(compiled.eval()(x), model.eval()(x))
    torch._dynamo.reset()


@pytest.mark.parametrize("device", DEVICES)
def test_checkpointed(device: str, seed: int) -> None:
    model, x = mm32.replace_linear(Block()).to(device), torch.randn(5, 300, device=device, requires_grad=True)
    (wanted,) = torch.autograd.grad(model(x).sum(), x)
    (got,) = torch.autograd.grad(checkpoint(model, x, use_reentrant=False).sum(), x)
    close(got, wanted)


# ---------------------------------------------------------------------------------------------------------------------
# On the card


@pytest.mark.gpu
def test_a_model_with_reduce_overhead(seed: int) -> None:
    """Captured in a graph, replayed with other inputs and with later weights."""
    torch._dynamo.reset()
    model = mm32.replace_linear(Block()).cuda().eval()
    compiled = torch.compile(model, fullgraph=True, mode="reduce-overhead")
    with torch.no_grad():
        for number in range(6):
            x = torch.randn(5, 300, device="cuda")
            torch.compiler.cudagraph_mark_step_begin()
            close(compiled(x).clone(), model(x))
            if number == 3:
                model.head.weight.mul_(-1)
    torch._dynamo.reset()


@pytest.mark.gpu
def test_the_packed_weights_bits_are_the_kernels(panels_only: None, seed: int) -> None:
    layer, x = frozen_layer(700, 300, device="cuda", activation="gelu"), torch.randn(65, 700, device="cuda")
    with torch.no_grad():
        expected = mm32.linear(x, layer.weight, layer.bias, activation="gelu", kernel="tensorcore")
        for _ in range(2):
            assert torch.equal(layer(x), expected)
    assert layer._kept.packed.reason is None
    held = layer._kept.packed.nbytes
    assert 300 * 700 * 4 <= held <= 304 * 704 * 4 + 300 * 64 + 24576


@pytest.mark.gpu
def test_memory_is_let_go(seed: int) -> None:
    def requested() -> int:
        return torch.cuda.memory_stats()["requested_bytes.all.current"]

    layer, x = mm32.nn.Linear(700, 300, device="cuda").eval(), torch.randn(65, 700, device="cuda")
    with torch.no_grad():
        layer(x)
    before = requested()
    mm32.freeze(layer)
    assert requested() == before + layer._kept.packed.nbytes
    layer.train()
    assert requested() == before
    mm32.freeze(layer.eval())
    assert requested() > before
    layer.cpu()
    assert requested() < before


@pytest.mark.gpu
def test_a_graph_sees_later_weights(seed: int) -> None:
    """Captured, a layer reads the weight itself: a replay computes with what it holds then; eager calls stay right too."""
    layer, x = mm32.nn.Linear(700, 300, device="cuda").eval(), torch.randn(65, 700, device="cuda")
    with torch.no_grad():
        layer(x), mm32.freeze(layer)(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = layer(x)
        for _ in range(3):
            layer.weight.copy_(torch.randn(300, 700, device="cuda"))
            graph.replay()
            assert_close(result, *reference(x, layer.weight.T, layer.bias))
            assert_close(layer(x), *reference(x, layer.weight.T, layer.bias))


@pytest.mark.gpu
def test_other_streams_wait_for_the_packing(seed: int) -> None:
    """Packed late on one stream, used at once on another: the second waits for it, as nothing else makes it."""
    layer, x = frozen_layer(700, 300, device="cuda"), torch.randn(65, 700, device="cuda")
    with torch.no_grad():
        expected = layer(x)
        layer.weight.mul_(1)  # the next call packs it again
        torch.cuda.synchronize()
        first, second = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(first):
            torch.cuda._sleep(200_000_000)
            layer(x)
        with torch.cuda.stream(second):
            got = layer(x)
            second.synchronize()
            assert torch.equal(got, expected)
        torch.cuda.synchronize()


@pytest.mark.gpu
def test_half_and_back_on_the_card(seed: int) -> None:
    layer, x = frozen_layer(700, 300, device="cuda"), torch.randn(65, 700, device="cuda")
    with torch.no_grad():
        layer(x)
        half = layer.half()(x.half())
        assert half.dtype == torch.float16
        assert layer._kept is None
        assert_close(layer.float()(x), *reference(x, layer.weight.T, layer.bias))
