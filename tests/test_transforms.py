"""torch.func and forward mode: values agree with the same transforms of torch's own matmul, and the number of products is
counted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.autograd.forward_ad as forward
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp

import mm32
from mm32 import torch_product
from mm32.activations import names
from support.gpu import assert_close, reference
from support.ops import DEVICES, SHAPES, Products, columns, make

Function = Callable[..., torch.Tensor]
# No slope; a slope of the result; and slopes of the pre-activation, computed by torch and by mm32.
FEW = (None, "tanh", "gelu", "silu")


@pytest.fixture(autouse=True)
def no_loops() -> Iterator[None]:
    """torch.vmap would run an operator that has no rule in a loop; in these tests that is an error."""
    before = torch._C._functorch._is_vmap_fallback_enabled()
    torch._C._functorch._set_vmap_fallback_enabled(False)
    yield
    torch._C._functorch._set_vmap_fallback_enabled(before)


def pair(activation: str | None) -> tuple[Function, Function]:
    """Return mm32's function and torch's, both of (a, b, bias)."""
    return (
        lambda a, b, bias: mm32.matmul(a, b, bias=bias, activation=activation),
        lambda a, b, bias: torch_product.activate(torch.matmul(a, b) + (bias if b.dim() > 1 else bias[0]), activation),
    )


def operands(shapes: str = "matrices", device: str = "cpu") -> tuple[torch.Tensor, ...]:
    dtype = torch.float64 if device == "cpu" else torch.float32
    a, b = SHAPES[shapes]
    return tuple(make(s, device, dtype=dtype) for s in (a, b, (columns(b),)))


def squared(f: Function) -> Function:
    return lambda *inputs: f(*inputs).square().sum()


def assert_equal(got: object, wanted: object) -> None:
    torch.testing.assert_close(got, wanted)  # compares containers too; NaN is equal to nothing


# ---------------------------------------------------------------------------------------------------------------------
# Forward mode


@pytest.mark.parametrize("activation", [None, *names()])
@pytest.mark.parametrize("with_tangents", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
def test_dual_numbers(activation: str | None, with_tangents: tuple[int, ...], seed: int) -> None:
    ours, torchs = pair(activation)
    values, tangents = operands(), operands()
    with forward.dual_level():
        inputs = [
            forward.make_dual(v, t) if i in with_tangents else v
            for i, (v, t) in enumerate(zip(values, tangents, strict=True))
        ]
        (got, got_t), (wanted, wanted_t) = (forward.unpack_dual(f(*inputs)) for f in (ours, torchs))
        with torch.no_grad():  # must not turn off forward mode
            assert_equal(forward.unpack_dual(ours(*inputs)).tangent, wanted_t)
    assert_equal(got, wanted)
    assert wanted_t is not None
    assert_equal(got_t, wanted_t)


@pytest.mark.parametrize("shapes", [s for s in SHAPES if s != "empty"])
def test_jvp_of_shapes(shapes: str, seed: int) -> None:
    ours, torchs = pair("sigmoid")
    values, tangents = operands(shapes), operands(shapes)
    assert_equal(jvp(ours, values, tangents), jvp(torchs, values, tangents))


def test_only_tangents_that_are_there_make_products(seed: int) -> None:
    (a, b, bias), (a_t, b_t, bias_t) = operands(), operands()
    for inputs, expected in (({"a": a_t}, 2), ({"b": b_t}, 2), ({"a": a_t, "b": b_t}, 3), ({"bias": bias_t}, 1)):
        with forward.dual_level(), Products() as products:
            x, y, z = (
                forward.make_dual(t, inputs[name]) if name in inputs else t
                for name, t in (("a", a), ("b", b), ("bias", bias))
            )
            mm32.matmul(x, y, bias=z, activation="relu")
        assert products.shapes == [(3, 5)] * expected


def test_out_has_no_forward_mode(seed: int) -> None:
    a, b, bias = operands()
    out = torch.empty(3, 5, dtype=torch.float64)
    with forward.dual_level():
        for dual in ((forward.make_dual(a, a), b, bias, out), (a, b, forward.make_dual(bias, bias), out)):
            with pytest.raises(NotImplementedError, match=r"forward AD with mm32::matmul_out.*is an out= function"):
                mm32.matmul(dual[0], dual[1], bias=dual[2], out=dual[3])


# ---------------------------------------------------------------------------------------------------------------------
# torch.func

TRANSFORMS: dict[str, Callable[[Function], object]] = {
    "grad": lambda f: grad(squared(f), (0, 1, 2))(*operands()),
    "vjp": lambda f: vjp(f, *operands())[1](torch.ones(3, 5, dtype=torch.float64)),
    "jvp": lambda f: jvp(f, operands(), operands()),
    "linearize": lambda f: linearize(f, *operands())[1](*operands()),
    "jacrev": lambda f: jacrev(f, (0, 1, 2))(*operands()),
    "jacfwd": lambda f: jacfwd(f, (0, 1, 2))(*operands()),
    "forward_over_reverse": lambda f: hessian(squared(f), (0, 1, 2))(*operands()),
    "reverse_over_forward": lambda f: jacrev(jacfwd(squared(f), (0, 1, 2)), (0, 1, 2))(*operands()),
    "reverse_over_reverse": lambda f: jacrev(jacrev(squared(f), (0, 1, 2)), (0, 1, 2))(*operands()),
    "forward_over_forward": lambda f: jacfwd(jacfwd(squared(f), (0, 1, 2)), (0, 1, 2))(*operands()),
    "third": lambda f: jacfwd(hessian(squared(f)))(*operands("vectors")),
    "gradients_of_samples": lambda f: torch.vmap(grad(squared(f), (0, 1, 2)), (0, None, None))(
        operands("batch")[0], *operands()[1:]
    ),
    "gradients_of_rows": lambda f: torch.vmap(grad(squared(f), (0, 1, 2)), (0, None, None))(*operands()),
    "gradient_of_mapped": lambda f: grad(squared(torch.vmap(f, (0, None, 0))), (0, 1, 2))(
        operands("batch")[0], operands()[1], make((2, 5), dtype=torch.float64)
    ),
    "hessians_of_samples": lambda f: torch.vmap(hessian(squared(f), (0, 1)), (0, None, None))(*operands()),
    "no_grad_inside": lambda f: grad(lambda a, b, bias: (a.sum() * no_grad(f)(a, b, bias)).sum(), (0, 1))(*operands()),
}


def no_grad(f: Function) -> Function:
    def inside(*inputs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return f(*inputs)

    return inside


@pytest.mark.parametrize("activation", FEW)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms(transform: str, activation: str | None, seed: int) -> None:
    results = []
    for f in pair(activation):
        torch.manual_seed(seed)
        results.append(TRANSFORMS[transform](f))
    assert_equal(results[0], results[1])


@pytest.mark.parametrize("kind", ["relu", "leaky_relu", "gelu_tanh", "sigmoid"])
def test_other_activations_twice(kind: str, seed: int) -> None:
    ours, torchs = pair(kind)
    inputs = operands()
    assert_equal(hessian(squared(ours), (0, 1, 2))(*inputs), hessian(squared(torchs), (0, 1, 2))(*inputs))


def test_backward_of_a_dual(seed: int) -> None:
    """Forward mode works through a backward pass, without torch.func."""
    for activation in (None, "relu", "tanh", "gelu"):
        results = []
        for f in pair(activation):
            torch.manual_seed(seed)
            a, b, bias = operands()
            a.requires_grad_()
            with forward.dual_level():
                (gradient,) = torch.autograd.grad(squared(f)(forward.make_dual(a, torch.ones_like(a)), b, bias), a)
                results.append(tuple(forward.unpack_dual(gradient)))
        assert_equal(results[0], results[1])


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return mm32.linear(x, self.linear.weight, self.linear.bias, activation="gelu")


@pytest.mark.parametrize("device", DEVICES)
def test_per_sample_gradients_of_a_module(device: str, seed: int) -> None:
    """functional_call, grad and vmap together give the same as one backward for each sample."""
    layer, x = Layer().to(device), make((6, 3, 4), device)
    parameters = dict(layer.named_parameters())

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return functional_call(layer, parameters, (x,)).square().sum()

    each = torch.vmap(grad(loss), (None, 0))(parameters, x)
    for i in range(6):
        layer.zero_grad()
        layer(x[i]).square().sum().backward()
        for name, parameter in layer.named_parameters():
            torch.testing.assert_close(each[name][i], parameter.grad, rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------------------------------------------------------------
# vmap

MAPPED = {
    **{name: SHAPES[name] for name in ("matrices", "vectors", "vector_matrix", "matrix_vector", "vector_batch")},
    **{name: SHAPES[name] for name in ("broadcast_a", "broadcast_b", "crosswise", "batch_vector", "depth_zero")},
}


@pytest.mark.parametrize("bias", [None, "shared", "mapped"])
@pytest.mark.parametrize("shapes", MAPPED)
def test_vmap_over_any_dimension(shapes: str, bias: str | None, seed: int) -> None:
    """Every combination of in_dims of a and b is computed as one product."""
    a_shape, b_shape = MAPPED[shapes]
    ours, torchs = pair("tanh")
    if bias is None:
        ours, torchs = (lambda a, b, _: mm32.matmul(a, b)), (lambda a, b, _: torch.matmul(a, b))
    for dims in itertools.product((None, *range(len(a_shape) + 1)), (None, *range(len(b_shape) + 1))):
        in_dims = (*dims, 1 if bias == "mapped" else None)
        if in_dims == (None, None, None):
            continue
        inputs = []
        for shape, dim in zip((a_shape, b_shape, (columns(b_shape),)), in_dims, strict=True):
            sizes = list(shape)
            if dim is not None:
                sizes.insert(dim, 7)
            inputs.append(make(tuple(sizes), dtype=torch.float64))
        with Products() as products:
            got = torch.vmap(ours, in_dims)(*inputs)
        assert len(products.shapes) == 1, in_dims
        assert_equal(got, torch.vmap(torchs, in_dims)(*inputs))


def test_samples_share_a_product_where_one_operand_is_shared(seed: int) -> None:
    """The samples are rows or columns of one product, not a batch of small ones."""
    rows, vectors, b = make((7, 4)), make((7, 4)), make((4, 5))
    with Products() as products:
        torch.vmap(mm32.matmul, (0, None))(rows, b)
        torch.vmap(mm32.matmul, (None, 0))(b.T, vectors)
        torch.vmap(mm32.matmul, (0, None))(rows, vectors[0])
    assert products.shapes == [(7, 5), (5, 7), (7,)]


def test_vmap_of_vmap(seed: int) -> None:
    a, b, bias = make((6, 3, 7, 4)), make((4, 5, 7)), make((6, 5))
    ours, torchs = pair("relu")

    def twice(f: Function) -> torch.Tensor:
        return torch.vmap(torch.vmap(f, (1, 2, None)), (0, None, 0), out_dims=2)(a, b, bias)

    with Products() as products:
        got = twice(ours)
    assert len(products.shapes) == 1
    torch.testing.assert_close(got, twice(torchs), rtol=1e-5, atol=1e-5)


def test_vmap_of_nothing() -> None:
    assert torch.vmap(mm32.matmul)(torch.ones(0, 3, 2), torch.ones(0, 2, 4)).shape == (0, 3, 4)


def test_vmap_checks_one_sample() -> None:
    """Operands are refused if they fit only together with the mapped dimension."""
    three = torch.vmap(lambda a, b, bias: mm32.matmul(a, b, bias=bias))
    square = torch.ones(2, 2, 2)
    with pytest.raises(RuntimeError, match="need to be at least 1D, but they are 0D and 0D"):
        torch.vmap(mm32.matmul)(torch.ones(3), torch.ones(3))
    with pytest.raises(RuntimeError, match=r"cannot be multiplied \(3x4 and 5x6\)"):
        torch.vmap(mm32.matmul)(torch.ones(2, 3, 4), torch.ones(2, 5, 6))
    with pytest.raises(RuntimeError, match=r"bias must have shape \(2,\).*got \(1, 2\)"):
        three(square, square, torch.ones(2, 1, 2))
    with pytest.raises(RuntimeError, match=r"same dtype, but got: a torch.float32, bias torch.float64"):
        three(square, square, torch.ones(2, 2, dtype=torch.float64))


def test_vmap_does_not_write_to_out() -> None:
    with pytest.raises(RuntimeError, match=r"out= cannot be written inside torch[.]vmap: call it without out"):
        torch.vmap(lambda a, out: mm32.matmul(a, a, out=out))(torch.ones(3, 2, 2), torch.ones(3, 2, 2))


# ---------------------------------------------------------------------------------------------------------------------
# On the card


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["auto", "simt", "tensorcore"])
def test_tangents_have_a_matmuls_error(kernel: str, seed: int) -> None:
    a, a_t, b = make((130, 300), "cuda"), make((130, 300), "cuda"), make((65, 300), "cuda").T
    value, tangent = jvp(lambda a: mm32.matmul(a, b, kernel=kernel), (a,), (a_t,))
    assert_close(value, *reference(a, b))
    assert_close(tangent, *reference(a_t, b))


@pytest.mark.gpu
@pytest.mark.parametrize("in_dims", [(0, None), (1, None), (None, 0), (0, 0), (2, 1)])
def test_vmap_on_the_card(in_dims: tuple[int | None, int | None], seed: int) -> None:
    a, b = (
        make(shape, "cuda") if dim is None else make((9, *shape), "cuda").movedim(0, dim)
        for shape, dim in zip(((130, 300), (300, 65)), in_dims, strict=True)
    )
    got = torch.vmap(mm32.matmul, in_dims)(a, b)
    first = [t if dim is None else t.movedim(dim, 0) for t, dim in zip((a, b), in_dims, strict=True)]
    assert_close(got, *reference(*first))


@pytest.mark.gpu
@pytest.mark.parametrize("activation", FEW)
@pytest.mark.parametrize("transform", ["grad", "jvp", "hessian"])
def test_transforms_on_the_card(transform: str, activation: str | None, seed: int) -> None:
    ours, torchs = pair(activation)
    inputs, tangents = operands(device="cuda"), operands(device="cuda")
    got, wanted = (
        {
            "grad": lambda f=f: grad(squared(f), (0, 1, 2))(*inputs),
            "jvp": lambda f=f: jvp(f, inputs, tangents),
            "hessian": lambda f=f: hessian(squared(f), (0, 1))(*inputs),
        }[transform]()
        for f in (ours, torchs)
    )
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-3)
