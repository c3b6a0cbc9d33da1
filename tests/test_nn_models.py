"""What mm32.replace_linear does to a model: which layers and activations it replaces, and that models train and compile as
before."""

from __future__ import annotations

import copy
import io
import logging
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

import mm32
from mm32 import activations
from support.nn import DEVICES, MODULES, Block, close, linear_calls


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """The activation of each call that the layers make of mm32.linear."""
    return linear_calls(monkeypatch)


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
    """A Sequential that returns the output of each of its modules."""

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


def test_a_model_without_a_linear_layer_is_warned_of(recwarn: pytest.WarningsRecorder) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU())
    with pytest.warns(
        UserWarning, match=r"found no torch\.nn\.Linear in Sequential, .* Conv2d, ReLU, Sequential: nothing"
    ) as said:
        assert mm32.replace_linear(model) is model
    assert "mm32.enable()" in str(said[0].message)
    assert said[0].filename == __file__
    many = nn.ModuleList(type(f"Kind{i}", (nn.Module,), {})() for i in range(20))
    with pytest.warns(UserWarning, match=r"types Kind0, (Kind\d+, ){7}\.\.\.: nothing was replaced"):
        mm32.replace_linear(many)
    # There is no warning for a model that has such layers, had them before a first call, or keeps them because of the filter or
    # their kind.
    for some in (Block(), mm32.replace_linear(Block()), nn.Sequential(Special(4, 4))):
        mm32.replace_linear(some)
    mm32.replace_linear(Block(), filter=lambda name, layer: False)
    assert [str(w.message) for w in recwarn if w.category is UserWarning] == []


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
    """Return how often a model is compiled if it is trained and evaluated in turn with several sizes. Asserts that gradients and
    values are `other`'s."""
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


# test_compiled.py tests inductor on a CPU with operators.
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


@pytest.mark.gpu
def test_a_model_with_reduce_overhead(seed: int) -> None:
    """The model is captured in a graph, and replayed with other inputs and with later weights."""
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


def test_activations_may_stay_where_they_are(seed: int) -> None:
    """With fuse=False they do, so that a Sequential can be taken apart and edited."""
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    x = torch.randn(6, 4)
    expected = model[:1](x), model(x)
    assert mm32.replace_linear(model, fuse=False) is model
    assert [type(m) for m in model] == [mm32.nn.Linear, nn.ReLU, mm32.nn.Linear]
    close(model[:1](x), expected[0])
    close(model(x), expected[1])
    model[1] = nn.Tanh()
    close(model(x), model[2](torch.tanh(model[0](x))))


@pytest.mark.parametrize("activation", [None, *activations.names()])
def test_a_scripted_layer_leaves_other_dtypes_to_torch(activation: str | None, seed: int) -> None:
    layer = mm32.nn.Linear(4, 5, activation=activation).to(torch.bfloat16)
    x = torch.randn(3, 4, dtype=torch.bfloat16)
    assert torch.equal(torch.jit.script(layer)(x), layer(x))


def test_a_layer_says_what_torch_says_of_no_tensor() -> None:
    with pytest.raises(TypeError, match="must be Tensor, not NoneType"):
        mm32.nn.Linear(4, 5)(None)
