"""What mm32.nn.Linear keeps of its weight: nothing unless it is frozen, then the packed weight until the weight changes."""

from __future__ import annotations

import copy
import io
import logging
import pickle
import threading
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import mm32
from mm32 import functions, torch_product
from mm32 import nn as layers
from support.gpu import assert_close, reference
from support.nn import DEVICES, Block, close, frozen_layer

# ---------------------------------------------------------------------------------------------------------------------
# A layer that is not frozen keeps nothing, so its result is right after any write


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
    """Change the weight in a way that torch cannot see: by numpy on the CPU, by .data on a card."""
    if layer.weight.is_cuda:
        layer.weight.data.neg_()
    else:
        layer.weight.detach().numpy()[:] *= -1


# Changes that a frozen layer notices, so that it packs its weight again.
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
    """EMA libraries put averaged weights in for an evaluation, and take them out again, by writes that torch does not count."""
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
    """torch.optim.swa_utils keeps a deep copy, which it writes to after each step and which is used instead of the model."""
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
        averaged.update_parameters(model)  # uses torch._foreach_lerp_, whose writes torch does not count on a GPU
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
# Frozen layers. On the CPU a packed operand is only the tensor, but it is made and dropped at the same times as on a card.


@pytest.fixture
def matmuls(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """For each call that the layers make of mm32.matmul and mm32.linear: whether the weight was packed."""
    seen: list[dict] = []

    def noted(real: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def product(a: torch.Tensor, b: object, *rest: object, **options: object) -> torch.Tensor:
            seen.append({"packed": isinstance(b, mm32.PackedOperand)})
            return real(a, b, *rest, **options)

        return product

    for name in ("matmul", "linear"):
        monkeypatch.setattr(functions, name, noted(getattr(functions, name)))
    return seen


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
    """A model that stays in eval mode is evaluated between steps: only the count of the weight's changes tells of them."""
    layer, x = frozen_layer(300, 7, device=device), torch.randn(5, 300, device=device)
    optimizer = torch.optim.Adam(layer.parameters(), 0.1)
    for _ in range(3):
        with torch.no_grad():
            close(layer(x), x @ layer.weight.T + layer.bias)
        layer(x).sum().backward()
        optimizer.step()
    assert len(packings) == 3


class Quiet(torch.optim.SGD):
    """An optimizer whose steps torch does not count, like those of fused optimizers on a GPU."""

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.data.neg_()


def test_a_step_is_seen_by_every_layer_that_has_the_weight(packings: list, seed: int) -> None:
    """A layer also sees a step of a weight that one of its calls was given. Layers that are no longer frozen, or have another
    weight, do not."""
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
    """Module.to swaps DTensors, and all parameters if torch is set so, as here. Two layers share one weight."""
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
    """Parametrizations compute a new weight for each call, which may be at the address of the last one."""
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
    """torch does not count the changes of inference tensors."""
    with torch.inference_mode():
        layer, x = frozen_layer(20, 7), torch.randn(5, 20)
        layer(x)
        layer.weight.zero_()
        close(layer(x), layer.bias.expand(5, 7))
    assert packings == []


def test_a_weight_that_is_no_matrix_is_not_packed(packings: list, caplog: pytest.LogCaptureFixture) -> None:
    """FSDP1 leaves weights like this between calls."""
    layer = mm32.nn.Linear(3, 3).eval()
    layer.weight = nn.Parameter(torch.randn(9))
    with caplog.at_level(logging.WARNING, "mm32"):
        mm32.freeze(layer)
    assert caplog.messages == [
        "mm32.freeze did not pack the model: the weight is not a matrix: its shape is (9,), as when FSDP1 shards it"
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


def test_a_copy_with_a_parametrization_is_not_frozen() -> None:
    """torch's parametrizations replace the method by which a copy leaves out what belongs to a frozen layer."""
    layer = mm32.nn.Linear(3, 4).eval()
    torch.nn.utils.parametrizations.weight_norm(layer)
    mm32.freeze(layer)
    assert layer._is_frozen()
    made = copy.deepcopy(layer)
    torch.nn.utils.parametrize.remove_parametrizations(made, "weight")
    assert not made._is_frozen()
    assert layer._is_frozen()


def test_what_cannot_be_frozen(caplog: pytest.LogCaptureFixture, seed: int) -> None:
    for function in (mm32.freeze, mm32.unfreeze):
        with pytest.raises(TypeError, match=rf"mm32\.{function.__name__} takes a torch\.nn\.Module, got int"):
            function(3)
    model = mm32.replace_linear(Block()).eval()
    model.head.train(), model.net[0].train()
    with pytest.raises(RuntimeError, match=r"in training mode: net\.0, head\. Call model\.eval\(\) first"):
        mm32.freeze(model)
    assert not any(m._is_frozen() for m in model.modules() if isinstance(m, mm32.nn.Linear))
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
    """All of its layers are packed, shared ones once, and its values are as before."""
    model, x = mm32.replace_linear(Block()).to(device).eval(), torch.randn(5, 300, device=device)
    with torch.no_grad():
        expected = model(x)
        mm32.freeze(model)
        close(model(x), expected)
        assert len(packings) == 7
        for p in model.parameters():
            p.data.mul_(-0.5)  # torch does not count this, so a frozen model sees it only when it is frozen again
        mm32.freeze(model)
        assert len(packings) == 14
        got = model(x)
        mm32.unfreeze(model)
        close(got, model(x))
        assert not torch.allclose(got, expected)
        for p in model.parameters():
            p.data.mul_(-2)
        close(model(x), expected)
    assert not any(m._is_frozen() or m._kept for m in model.modules() if isinstance(m, mm32.nn.Linear))


def plain(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x @ layer.weight.T + layer.bias)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("before", [False, True], ids=["changed", "packed"])
@pytest.mark.parametrize("transform", ["jvp", "jacfwd", "vmap", "no_grad_inside_grad"])
def test_transforms_leave_nothing_behind(transform: str, before: bool, device: str, packings: list, seed: int) -> None:
    """A packed weight that was made inside a transform would belong to it, and be gone when it ends."""
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
        if not before:  # then the packed weight is no longer the layer's
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
    """The graph must have the weight itself: panels would stay in it as they were when it was traced."""
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
        close(compiled(x), torch_product.activate(x @ layer.weight.T + layer.bias, activation))
        layer.weight.mul_(2)
        close(compiled(x), torch_product.activate(x @ layer.weight.T + layer.bias, activation))
    assert packings == []
    layer.train()
    x.requires_grad_()
    (got,) = torch.autograd.grad(compiled(x).sum(), x)
    (expected,) = torch.autograd.grad(torch_product.activate(x @ layer.weight.T + layer.bias, activation).sum(), x)
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
    """torch.fx's proxies are not tensors, so the layer is torch.nn.functional.linear for them."""
    model, x = mm32.replace_linear(nn.Sequential(nn.Linear(20, 7), nn.ReLU())), torch.randn(5, 20)
    close(torch.fx.symbolic_trace(model)(x), model(x))


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("frozen", [False, True])
def test_torchscript(frozen: bool, seed: int) -> None:
    """A model that is scripted or traced, saved and loaded has mm32's operator with its gradients. The original model is not
    changed."""
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
# On the card


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
    """A captured layer reads the weight itself, so a replay uses the weight's values at that time. Eager calls stay right too."""
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
    """A weight is packed late on one stream and used at once on another. The layer must make the second stream wait, since
    nothing else does."""
    layer, x = frozen_layer(700, 300, device="cuda"), torch.randn(65, 700, device="cuda")
    with torch.no_grad():
        expected = layer(x)
        layer.weight.mul_(1)  # makes the next call pack it again
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
