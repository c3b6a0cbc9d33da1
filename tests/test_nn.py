"""mm32.nn.Linear is torch.nn.Linear in all but how it computes. Frozen layers are in test_nn_frozen.py, models in
test_nn_models.py."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import mm32
from mm32 import torch_product
from mm32.activations import names
from support.gpu import assert_close, reference
from support.nn import DEVICES, close, linear_calls


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """The activation of each call that the layers make of mm32.linear."""
    return linear_calls(monkeypatch)


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
    wanted = torch.autograd.grad(
        (torch_product.activate(linear(x), activation) * weight).sum(), (x, *linear.parameters())
    )
    for got, expected in zip(
        torch.autograd.grad((layer(x) * weight).sum(), (x, *layer.parameters())), wanted, strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_the_activation_is_the_products_whether_gradients_are_recorded_or_not(calls: list[dict], seed: int) -> None:
    layer, x = mm32.nn.Linear(20, 7, activation="relu"), torch.randn(5, 20)
    layer(x)
    with torch.no_grad():
        layer(x)
    layer.requires_grad_(False)(x)
    layer(x.clone().requires_grad_())
    assert [c["activation"] for c in calls] == ["relu"] * 4


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
    """A wrapper that implements torch.nn.functional.linear and no other product, as quantized weights do."""

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
