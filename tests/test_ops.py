"""The operators as torch sees them: schema, fake tensors, compile, gradients, autocast."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode

import mm32
from mm32.gemm import ACTIVATIONS

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SHAPES = {
    "matrices": ((3, 4), (4, 5)),
    "batch": ((2, 3, 4), (2, 4, 5)),
    "broadcast_a": ((3, 4), (2, 4, 5)),
    "broadcast_b": ((2, 6, 3, 4), (4, 5)),
    "crosswise": ((2, 1, 3, 4), (6, 4, 5)),
    "vectors": ((4,), (4,)),
    "vector_matrix": ((4,), (4, 5)),
    "matrix_vector": ((3, 4), (4,)),
    "vector_batch": ((4,), (2, 4, 5)),
    "batch_vector": ((2, 3, 4), (4,)),
    "row": ((1, 4), (4, 1)),
    "depth_zero": ((3, 0), (0, 4)),
    "empty": ((0, 4), (4, 5)),
}
SMOOTH = [None, *(name for name in ACTIVATIONS if name not in ("relu", "leaky_relu"))]


def make(shape: tuple[int, ...], device: str = "cpu", **options: object) -> torch.Tensor:
    return torch.randn(shape, device=device, **options)


def columns(b: tuple[int, ...]) -> int:
    return b[-1] if len(b) > 1 else 1


def transposed(t: torch.Tensor) -> torch.Tensor:
    """The same values and shape, in the other storage order."""
    return t.mT.contiguous().mT if t.dim() > 1 else t


# ---------------------------------------------------------------------------------------------------------------------
# Schema, fake tensors, compile


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shapes", SHAPES)
def test_opcheck(shapes: str, device: str, seed: int) -> None:
    a, b = (make(s, device, requires_grad=True) for s in SHAPES[shapes])
    bias = make((columns(SHAPES[shapes][1]),), device, requires_grad=True)
    opcheck(torch.ops.mm32.matmul.default, (a, b, None, None, "fp32", "auto"))
    opcheck(torch.ops.mm32.matmul.default, (transposed(a.detach()), b, bias, "gelu", "ieee", "naive"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shapes", ["matrices", "broadcast_b", "vectors", "batch_vector", "empty"])
def test_opcheck_out(shapes: str, device: str, seed: int) -> None:
    a, b = (make(s, device) for s in SHAPES[shapes])
    out = transposed(torch.empty(torch.matmul(a, b).shape, device=device))
    bias = make((columns(SHAPES[shapes][1]),), device)
    opcheck(torch.ops.mm32.matmul_out.default, (a, b, bias, "relu", "fp32", "auto", out))


@pytest.mark.parametrize("shapes", SHAPES)
def test_meta_tensors_have_the_results_shape(shapes: str) -> None:
    a, b = (make(s, "meta") for s in SHAPES[shapes])
    real = mm32.matmul(*(make(s) for s in SHAPES[shapes]))
    for x, y in ((a, b), (transposed(a), transposed(b))):
        fake = mm32.matmul(x, y, bias=torch.empty(columns(SHAPES[shapes][1]), device="meta"), activation="silu")
        assert fake.device.type == "meta"
        assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), torch.float32)
        assert fake.is_contiguous()


def test_meta_refuses_what_the_device_refuses() -> None:
    a, b = make((2, 3), "meta"), make((4, 5), "meta")
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(2x3 and 4x5\)"):
        mm32.matmul(a, b)
    with pytest.raises(ValueError, match="unknown kernel 'fast'"):
        mm32.matmul(a, a.mT, kernel="fast")
    with pytest.raises(ValueError, match="unknown activation 'swish'"):
        mm32.matmul(a, a.mT, activation="swish")
    with pytest.raises(RuntimeError, match=r"out has shape \(2, 3\), the result has shape \(2, 2\)"):
        mm32.matmul(a, a.mT, out=make((2, 3), "meta"))


def assert_same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shapes", ["matrices", "broadcast_b", "vector_batch"])
def test_compiled_equals_eager(shapes: str, device: str, seed: int) -> None:
    """One graph, forward and backward, with views and an operation on either side of it."""
    torch._dynamo.reset()
    bias = make((5,), device, requires_grad=True)
    a, b = (make(s, device, requires_grad=True) for s in SHAPES[shapes])

    def model(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return mm32.matmul(a + 1, b.mT.contiguous().mT, bias=bias, activation="gelu").sin()

    eager = model(a, b, bias)
    wanted = torch.autograd.grad(eager.sum(), (a, b, bias))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")(a, b, bias)
    assert_same(compiled, eager)
    for got, expected in zip(torch.autograd.grad(compiled.sum(), (a, b, bias)), wanted, strict=True):
        assert_same(got, expected)


@pytest.mark.parametrize("device", DEVICES)
def test_compiled_for_any_size(device: str, seed: int) -> None:
    """Sizes that change from call to call: one compilation takes them all."""
    torch._dynamo.reset()
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list) -> Callable:
        graphs.append(graph)
        return graph.forward

    f = torch.compile(lambda a, b: mm32.matmul(a, b, activation="relu"), fullgraph=True, dynamic=True, backend=backend)
    for m, k, n in ((3, 4, 5), (7, 9, 2), (16, 33, 8)):
        a, b = make((m, k), device), make((k, n), device)
        assert_same(f(a, b), torch.relu(a @ b))
    assert len(graphs) == 1


@pytest.mark.parametrize("device", DEVICES)
def test_compiled_writes_to_out(device: str, seed: int) -> None:
    torch._dynamo.reset()
    a, b, out = make((3, 4), device), make((4, 5), device), torch.zeros(5, 3, device=device).T

    def model(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        mm32.matmul(a, b, out=out)
        return out * 2

    doubled = torch.compile(model, fullgraph=True, backend="aot_eager")(a, b, out)
    assert_same(out, a @ b)
    assert_same(doubled, 2 * (a @ b))


# ---------------------------------------------------------------------------------------------------------------------
# Gradients


def function(activation: str | None) -> Callable[..., torch.Tensor]:
    return lambda a, b, bias=None: mm32.matmul(a, b, bias=bias, activation=activation)


def away_from_kinks(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> bool:
    z = mm32.matmul(a, b, bias=bias)
    return z.numel() == 0 or bool(z.abs().min() > 1e-3)


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize("shapes", [s for s in SHAPES if s not in ("empty", "depth_zero")])
def test_gradients(shapes: str, activation: str | None, seed: int) -> None:
    """Against finite differences in float64, with and without a bias, transposed storage on one side."""
    for _ in range(100):
        a, b = (make(s, dtype=torch.float64) for s in SHAPES[shapes])
        bias = make((columns(SHAPES[shapes][1]),), dtype=torch.float64)
        if away_from_kinks(a, b, bias) and away_from_kinks(a, b, None):
            break
    a, b, bias = transposed(a).requires_grad_(), b.requires_grad_(), bias.requires_grad_()
    assert torch.autograd.gradcheck(function(activation), (a, b, bias))
    assert torch.autograd.gradcheck(function(activation), (a, b))


@pytest.mark.parametrize("activation", SMOOTH)
@pytest.mark.parametrize("shapes", ["matrices", "broadcast_b", "vectors", "vector_batch"])
def test_second_gradients(shapes: str, activation: str | None, seed: int) -> None:
    a, b = (0.5 * make(s, dtype=torch.float64) for s in SHAPES[shapes])
    bias = make((columns(SHAPES[shapes][1]),), dtype=torch.float64)
    assert torch.autograd.gradgradcheck(function(activation), tuple(t.requires_grad_() for t in (a, b, bias)))


@pytest.mark.parametrize("shapes", ["empty", "depth_zero"])
def test_gradients_of_nothing_are_zeros(shapes: str) -> None:
    a, b = (make(s, requires_grad=True) for s in SHAPES[shapes])
    mm32.matmul(a, b, bias=torch.zeros(SHAPES[shapes][1][-1]), activation="silu").sum().backward()
    assert torch.equal(a.grad, torch.zeros_like(a))
    assert torch.equal(b.grad, torch.zeros_like(b))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_gradients_are_torchs(activation: str | None, device: str, seed: int) -> None:
    """The same as autograd's through torch's functions, in float32, for a linear layer on a batch."""
    a, b, bias = make((2, 33, 20), device), make((20, 17), device), make((17,), device)
    inputs = [t.requires_grad_() for t in (a, b, bias)]
    weight = make((2, 33, 17), device)
    z = a @ b + bias
    torchs = {None: z, "gelu_tanh": F.gelu(z, approximate="tanh")}.get(activation)
    torchs = getattr(F, activation)(z) if torchs is None else torchs
    wanted = torch.autograd.grad((torchs * weight).sum(), inputs)
    got = torch.autograd.grad((mm32.matmul(a, b, bias=bias, activation=activation) * weight).sum(), inputs)
    for one, two in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)


class Products(TorchDispatchMode):
    """The shapes that mm32::matmul returns inside this context."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.mm32.matmul.default:
            self.shapes.append(tuple(result.shape))
        return result


@pytest.mark.parametrize(
    ("needed", "activation", "shapes"),
    [
        ("a", None, [(3, 4)]),
        ("b", None, [(4, 5)]),
        ("bias", None, []),
        ("ab", None, [(3, 4), (4, 5)]),
        ("a", "gelu", [(3, 5), (3, 4)]),  # the pre-activation again, then the gradient
        ("bias", "gelu", [(3, 5)]),
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


def test_the_gradient_of_a_shared_b_is_one_product(seed: int) -> None:
    """A weight used by a batch: its gradient is (K, N) from the start, not a (K, N) for each matrix, summed."""
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


# ---------------------------------------------------------------------------------------------------------------------
# Under torch's modes


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_does_not_lower_the_precision(device: str, seed: int) -> None:
    a, b, bias, out = (
        make((33, 65), device),
        make((65, 17), device),
        make((17,), device),
        torch.empty(33, 17, device=device),
    )
    plain = mm32.matmul(a, b, bias=bias, activation="gelu")
    with torch.autocast(device, torch.bfloat16):
        under = mm32.matmul(a, b, bias=bias, activation="gelu")
        mm32.matmul(a, b, bias=bias, activation="gelu", out=out)
    assert under.dtype == torch.float32
    assert torch.equal(under, plain)
    assert torch.equal(out, plain)


@pytest.mark.parametrize("device", DEVICES)
def test_inference_mode(device: str, seed: int) -> None:
    a, b = make((3, 4), device, requires_grad=True), make((4, 5), device)
    with torch.inference_mode():
        result = mm32.matmul(a, b, activation="tanh")
    assert result.is_inference()
    assert_same(result, torch.tanh(a.detach() @ b))


def test_explain_on_the_cpu_says_so() -> None:
    page = mm32.explain(make((2, 3)), make((3, 4)))
    assert page.startswith("device     cpu: torch.matmul")
    with pytest.raises(RuntimeError, match=r"\(2x3 and 2x3\)"):
        mm32.explain(make((2, 3)), make((2, 3)))
    with pytest.raises(ValueError, match="unknown kernel 'fast'"):
        mm32.explain(make((2, 3)), make((3, 4)), kernel="fast")
