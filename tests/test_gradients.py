"""Gradients of mm32.matmul: their values, second derivatives, what is saved for them and what they compute."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import mm32
from mm32 import torch_product
from mm32.activations import names
from mm32.gemm import LAYOUTS
from mm32.plan import KERNELS
from support.gpu import UNIT, Placed, Store, assert_close, reference
from support.ops import DEVICES, SHAPES, Products, assert_same, columns, make, transposed

SMOOTH = [None, *(name for name in names() if name not in ("relu", "leaky_relu"))]


def function(activation: str | None) -> Callable[..., torch.Tensor]:
    return lambda a, b, bias=None: mm32.matmul(a, b, bias=bias, activation=activation)


def away_from_kinks(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> bool:
    z = mm32.matmul(a, b, bias=bias)
    return z.numel() == 0 or bool(z.abs().min() > 1e-3)


FORMS = [(s, activation) for s in SHAPES for activation in (None, "tanh", "gelu") if s not in ("empty", "depth_zero")]
FORMS += [
    (s, activation) for s in ("matrices", "broadcast_b") for activation in names() if (s, activation) not in FORMS
]


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_lie_as_the_operands(device: str, seed: int) -> None:
    """As torch's: the gradient of a weight that was transposed has the weight's strides, so that nothing has to copy it."""
    x, weight = make((7, 5), device).requires_grad_(), make((3, 5), device).requires_grad_()
    batch = make((2, 7, 5), device).requires_grad_()
    for product in (mm32.matmul, torch.matmul):
        for left in (x, batch):
            grads = torch.autograd.grad(product(left, weight.T).square().sum(), (left, weight))
            assert [t.is_contiguous() for t in grads] == [True, True], product
        columns = x.T.detach().requires_grad_()
        (grad,) = torch.autograd.grad(product(weight.detach(), columns).square().sum(), columns)
        assert grad.stride() == columns.stride() == (1, 5), product
    assert_same(
        torch.autograd.grad(mm32.matmul(x, weight.T).square().sum(), weight)[0],
        torch.autograd.grad((x @ weight.T).square().sum(), weight)[0],
    )


@pytest.mark.parametrize(("shapes", "activation"), FORMS)
def test_gradients(shapes: str, activation: str | None, seed: int) -> None:
    """Gradients agree with finite differences in float64, in backward and forward mode, one and several at a time, with and
    without a bias, with transposed storage on one side."""
    for _ in range(100):
        a, b = (make(s, dtype=torch.float64) for s in SHAPES[shapes])
        bias = make((columns(SHAPES[shapes][1]),), dtype=torch.float64)
        if away_from_kinks(a, b, bias) and away_from_kinks(a, b, None):
            break
    a, b, bias = transposed(a).requires_grad_(), b.requires_grad_(), bias.requires_grad_()
    checks = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
    assert torch.autograd.gradcheck(function(activation), (a, b, bias), **checks)
    assert torch.autograd.gradcheck(function(activation), (a, b), **checks)


@pytest.mark.parametrize(
    ("shapes", "activation"),
    [("broadcast_a", "tanh"), ("crosswise", None), ("vectors", "gelu"), *(("matrices", name) for name in SMOOTH)],
)
def test_second_gradients(shapes: str, activation: str | None, seed: int) -> None:
    a, b = (0.5 * make(s, dtype=torch.float64) for s in SHAPES[shapes])
    bias = make((columns(SHAPES[shapes][1]),), dtype=torch.float64)
    inputs = tuple(t.requires_grad_() for t in (a, b, bias))
    # Forward over reverse: silu's gradient uses torch's own silu_backward, which has no forward mode.
    forward = activation != "silu"
    assert torch.autograd.gradgradcheck(function(activation), inputs, check_fwd_over_rev=forward)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu"])
def test_second_gradients_beside_the_kink(activation: str, seed: int) -> None:
    """These activations are linear on either side of the kink, so only the products' own second derivatives are left."""
    inputs = [make(s, dtype=torch.float64, requires_grad=True) for s in ((3, 4), (4, 5), (5,))]
    wanted, got = (
        torch.autograd.grad(sum(g.square().sum() for g in grads), inputs)
        for f in (function(activation), lambda a, b, bias: torch_product.activate(a @ b + bias, activation))
        for grads in [torch.autograd.grad(f(*inputs).square().sum(), inputs, create_graph=True)]
    )
    for one, two in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("shapes", ["empty", "depth_zero"])
def test_gradients_of_nothing_are_zeros(shapes: str) -> None:
    a, b = (make(s, requires_grad=True) for s in SHAPES[shapes])
    mm32.matmul(a, b, bias=torch.zeros(SHAPES[shapes][1][-1]), activation="silu").sum().backward()
    assert torch.equal(a.grad, torch.zeros_like(a))
    assert torch.equal(b.grad, torch.zeros_like(b))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("activation", [None, *names()])
def test_gradients_are_torchs(activation: str | None, device: str, seed: int) -> None:
    """Gradients are those of autograd through torch's functions, in float32, for a linear layer on a batch."""
    a, b, bias = make((2, 33, 20), device), make((20, 17), device), make((17,), device)
    inputs = [t.requires_grad_() for t in (a, b, bias)]
    weight = make((2, 33, 17), device)
    torchs = torch_product.activate(a @ b + bias, activation)
    wanted = torch.autograd.grad((torchs * weight).sum(), inputs)
    got = torch.autograd.grad((mm32.matmul(a, b, bias=bias, activation=activation) * weight).sum(), inputs)
    for one, two in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("needed", "activation", "shapes"),
    [
        ("a", None, [(3, 4)]),
        ("b", None, [(4, 5)]),
        ("bias", None, []),
        ("ab", None, [(3, 4), (4, 5)]),
        ("ab", "relu", [(3, 4), (4, 5)]),  # the slope comes from the result
        ("ab", "gelu", [(3, 4), (4, 5)]),  # the slope comes from the pre-activation, which is kept
        ("bias", "sigmoid", []),
        ("bias", "silu", []),
    ],
)
def test_only_needed_gradients_are_computed(
    needed: str, activation: str | None, shapes: list[tuple[int, ...]], seed: int
) -> None:
    a, b, bias = make((3, 4)), make((4, 5)), make((5,))
    wanted = {"a": [a], "b": [b], "bias": [bias], "ab": [a, b]}[needed]
    for t in wanted:
        t.requires_grad_()
    result = mm32.matmul(a, b, bias=bias, activation=activation)
    with Products() as products:
        torch.autograd.grad(result.sum(), wanted)
    assert products.shapes == shapes


@pytest.mark.parametrize(
    ("needed", "activation", "saved"),
    [
        ("a", None, "b"),
        ("b", None, "a"),
        ("bias", None, ""),
        ("ab", None, "ab"),
        ("a", "relu", "bc"),
        ("bias", "tanh", "c"),
        ("b", "gelu", "az"),
        ("bias", "silu", "z"),
    ],
)
def test_only_what_gradients_need_is_saved(needed: str, activation: str | None, saved: str, seed: int) -> None:
    """In `saved`, c is the result and z the pre-activation."""
    tensors = {"a": make((3, 4)), "b": make((4, 5)), "bias": make((5,))}
    for name in [needed] if needed == "bias" else needed:
        tensors[name].requires_grad_()
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        result = mm32.matmul(tensors["a"], tensors["b"], bias=tensors["bias"], activation=activation)
    known = {**tensors, "c": result, "z": tensors["a"] @ tensors["b"] + tensors["bias"]}
    assert len(kept) == len(saved)
    for name in saved:
        assert any(t.shape == known[name].shape and torch.allclose(t, known[name]) for t in kept), name


def test_a_result_changed_in_place_is_noticed(seed: int) -> None:
    a, b = make((3, 4), requires_grad=True), make((4, 5))
    result = mm32.matmul(a, b, activation="relu")
    result.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_the_gradient_of_a_shared_b_is_one_product(seed: int) -> None:
    """The gradient of a weight that a batch shares is computed as one (K, N), not as one (K, N) for each matrix and a sum."""
    a, b = make((6, 2, 3, 4)), make((4, 5), requires_grad=True)
    result = mm32.matmul(a, b)
    with Products() as products:
        (grad,) = torch.autograd.grad(result.sum(), b)
    assert products.shapes == [(4, 5)]
    assert_same(grad, a.sum(dim=(0, 1, 2))[:, None].expand(4, 5))


def test_out_and_gradients_exclude_each_other() -> None:
    a, b, out = make((2, 3)), make((3, 4)), torch.empty(2, 4)
    words = "functions with out=... arguments don't support automatic differentiation"
    for args, kept in (((a.clone().requires_grad_(), b), out), ((a, b), out.clone().requires_grad_())):
        with pytest.raises(RuntimeError, match=words):
            mm32.matmul(*args, out=kept)
    with pytest.raises(RuntimeError, match=words):
        mm32.matmul(a, b, bias=torch.zeros(4, requires_grad=True), out=out)
    with torch.no_grad():
        assert mm32.matmul(a.requires_grad_(), b, out=out) is out
    assert not out.requires_grad


@pytest.mark.parametrize("device", DEVICES)
def test_out_counts_as_a_change_in_place(device: str, seed: int) -> None:
    """If the old contents of `out` were saved for backward, backward raises an error, as with torch's own operators."""
    a, out, w = make((3, 3), device), make((3, 3), device), make((3, 3), device, requires_grad=True)
    product = w * out
    mm32.matmul(a, a, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    with torch.inference_mode():
        inside = torch.empty(3, 3, device=device)  # has no version to count
        assert_same(mm32.matmul(a, a, out=inside), a @ a)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["auto", *KERNELS])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_have_a_matmuls_error(kernel: str, layout: str, seed: int) -> None:
    """Each gradient is one product, and against float64 on the card it has the error bound of one."""
    order = {"n": (-2, -1), "t": (-1, -2)}
    a = Placed(torch.randn(3, 130, 77), Store((0, *order[layout[0]])), "cuda").view.requires_grad_()
    b = Placed(torch.randn(77, 65), Store(order[layout[1]]), "cuda").view.requires_grad_()
    bias, weight = make((65,), "cuda", requires_grad=True), make((3, 130, 65), "cuda")
    grads = torch.autograd.grad(mm32.matmul(a, b, bias=bias, kernel=kernel), (a, b, bias), weight)
    rows, flat = a.detach().flatten(0, 1), weight.flatten(0, 1)
    assert_close(grads[0], *reference(weight, b.detach().mT))
    assert_close(grads[1], *reference(rows.mT, flat))
    assert_close(grads[2], flat.double().sum(0), flat.shape[0] * UNIT * flat.double().abs().sum(0))
