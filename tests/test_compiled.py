"""mm32 inside torch.compile and torch.export: one graph, no more compilations than torch.matmul, the same values."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.autograd import forward_ad
from torch.func import grad, hessian, jvp

import mm32
from support.gpu import assert_close, reference
from support.ops import DEVICES, SHAPES, assert_same, make

Function = Callable[..., torch.Tensor]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(f: Function, backend: object = "aot_eager", **options: object) -> Function:
    return torch.compile(f, fullgraph=True, backend=backend, **options)


def model(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """A product with views before it and an operation on either side."""
    return mm32.matmul(a + 1, b.mT.contiguous().mT, bias=bias, activation="gelu").sin()


def inputs_of(shapes: str, device: str) -> tuple[torch.Tensor, ...]:
    return tuple(make(s, device, requires_grad=True) for s in (*SHAPES[shapes], (5,)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shapes", ["matrices", "broadcast_b", "vector_batch"])
def test_compiled_equals_eager(shapes: str, device: str, seed: int) -> None:
    """Compiled to one graph, forward and backward give the eager values."""
    inputs = inputs_of(shapes, device)
    eager = model(*inputs)
    wanted = torch.autograd.grad(eager.sum(), inputs)
    result = compiled(model)(*inputs)
    assert_same(result, eager)
    for got, expected in zip(torch.autograd.grad(result.sum(), inputs), wanted, strict=True):
        assert_same(got, expected)


# ---------------------------------------------------------------------------------------------------------------------
# How often it compiles

SIZES = ((3, 4, 5), (7, 9, 2), (1, 4, 5), (16, 33, 8))


def compilations(f: Function, dynamic: bool | None, recorded: bool, batched: bool, device: str) -> int:
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    g = compiled(f, counter, dynamic=dynamic)
    for number, (m, k, n) in enumerate(SIZES):
        a = make((2 + number, m, k) if batched else (m, k), device, requires_grad=recorded)
        b = make((2 + number, k, n) if batched and number % 2 else (k, n), device, requires_grad=recorded)
        result = g(a, b)
        assert_same(result, f(a, b))
        if recorded:
            result.sum().backward()
    return counter.frame_count


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("dynamic", "recorded", "batched"),
    [(None, False, False), (None, True, True), (True, True, False), (True, False, True), (False, False, False)],
)
def test_compiles_as_often_as_torchs_matmul(
    dynamic: bool | None, recorded: bool, batched: bool, device: str, seed: int
) -> None:
    """Sizes change from call to call, and include 1, for which torch specialises."""
    ours = compilations(lambda a, b: mm32.matmul(a, b, activation="tanh"), dynamic, recorded, batched, device)
    torchs = compilations(lambda a, b: torch.matmul(a, b).tanh(), dynamic, recorded, batched, device)
    assert ours == torchs


@pytest.mark.parametrize("device", DEVICES)
def test_one_compilation_for_any_size(device: str, seed: int) -> None:
    counter = CompileCounterWithBackend("aot_eager")
    f = compiled(lambda a, b: mm32.matmul(a, b, activation="relu"), counter, dynamic=True)
    for m, k, n in ((3, 4, 5), (7, 9, 2), (16, 33, 8)):
        a, b = make((m, k), device), make((k, n), device)
        assert_same(f(a, b), torch.relu(a @ b))
    assert counter.frame_count == 1


UNKNOWN: dict[str, Callable[[Function], Function]] = {
    "rows": lambda f: lambda x, b, where: f(x[where], b),
    "columns": lambda f: lambda x, b, where: f(b.T, x[where].T),
    "depth": lambda f: lambda x, b, where: f(x[where].T, x[where]),
    "batch": lambda f: lambda x, b, where: f(x[where][:, None], b),
    "two_batches": lambda f: lambda x, b, where: f(x[where][:, :, None], x[where][:, None]),
}


@pytest.mark.parametrize("which", UNKNOWN)
def test_sizes_that_only_the_data_tell(which: str, seed: int) -> None:
    """A boolean mask selects rows; how many it leaves is not known while tracing."""
    x, b = make((3, 4)), make((4, 5))
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        f = compiled(UNKNOWN[which](mm32.matmul))
        for count in (0, 1, 2, 3):
            where = torch.arange(3) < count
            assert_same(f(x, b, where), UNKNOWN[which](torch.matmul)(x, b, where))


# ---------------------------------------------------------------------------------------------------------------------
# out, transforms, errors


@pytest.mark.parametrize("device", DEVICES)
def test_compiled_writes_to_out(device: str, seed: int) -> None:
    a, b, out = make((3, 4), device), make((4, 5), device), torch.zeros(5, 3, device=device).T

    def f(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        mm32.matmul(a, b, out=out)
        return out * 2

    doubled = compiled(f)(a, b, out)
    assert_same(out, a @ b)
    assert_same(doubled, 2 * (a @ b))


@pytest.mark.compiler
@pytest.mark.parametrize("device", DEVICES)
def test_inductor_compiles_an_out(device: str, seed: int) -> None:
    """inductor traces such a program twice, and both traces must have the same operators."""
    a, b, out = make((3, 4), device), make((4, 5), device), torch.zeros(3, 5, device=device)

    def f(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        mm32.matmul(a, b, out=out)
        return out + 1

    assert_same(torch.compile(f, fullgraph=True)(a, b, out), a @ b + 1)
    assert_same(out, a @ b)


INSIDE: dict[str, Callable[[Function], Function]] = {
    "vmap": lambda f: lambda a, b: torch.vmap(f, (0, None))(a, b),
    "grad": lambda f: grad(lambda a, b: f(a, b).square().sum(), (0, 1)),
    "jvp": lambda f: lambda a, b: jvp(f, (a, b), (torch.ones_like(a), torch.ones_like(b))),
    "hessian": lambda f: hessian(lambda a, b: f(a, b).square().sum()),
    "gradients_of_samples": lambda f: torch.vmap(grad(lambda a, b: f(a, b).square().sum()), (0, None)),
}


@pytest.mark.parametrize("activation", [None, "tanh", "gelu"])
@pytest.mark.parametrize("transform", INSIDE)
def test_transforms_inside(transform: str, activation: str | None, seed: int) -> None:
    a, b = make((3, 4)), make((4, 5))
    f = INSIDE[transform](lambda a, b: mm32.matmul(a, b, activation=activation))
    torch.testing.assert_close(compiled(f)(a, b), f(a, b))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_dual_numbers_inside(backend: str, seed: int) -> None:
    """Tangents may appear inside the program, without torch.func."""

    def f(a: torch.Tensor, a_t: torch.Tensor, b: torch.Tensor) -> torch.Tensor | None:
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(mm32.matmul(forward_ad.make_dual(a, a_t), b)).tangent

    a_t, b = make((3, 4)), make((4, 5))
    assert_same(compiled(f, backend)(make((3, 4)), a_t, b), a_t @ b)


def test_bad_shapes_are_named_while_compiling() -> None:
    with pytest.raises(Exception, match=r"mat1 and mat2 shapes cannot be multiplied \(2x3 and 4x5\)"):
        compiled(mm32.matmul)(torch.ones(2, 3), torch.ones(4, 5))


# ---------------------------------------------------------------------------------------------------------------------
# Export


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 6), torch.nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = mm32.linear(x, self.first.weight, self.first.bias, activation="gelu")
        return mm32.linear(x, self.second.weight, self.second.bias, precision="ieee")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("decomposed", [False, True])
def test_export_and_back(decomposed: bool, strict: bool, device: str, seed: int) -> None:
    """A model is exported for any number of rows, saved, loaded and run."""
    layers = Layers().to(device)
    program = torch.export.export(
        layers, (make((7, 4), device),), dynamic_shapes={"x": {0: torch.export.Dim("rows", min=0)}}, strict=strict
    )
    if decomposed:
        program = program.run_decompositions()
    calls = [node for node in program.graph.nodes if node.target is torch.ops.mm32.matmul.default]
    assert [node.args[3:5] for node in calls] == [("gelu", "fp32"), (None, "ieee")]
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    for rows in (0, 1, 2, 33):
        x = make((rows, 4), device)
        with torch.no_grad():
            assert torch.equal(loaded(x), layers(x))


# ---------------------------------------------------------------------------------------------------------------------
# Inductor


@pytest.mark.compiler
@pytest.mark.parametrize("device", DEVICES)
def test_inductor(device: str, seed: int) -> None:
    inputs = inputs_of("broadcast_b", device)
    eager = model(*inputs)
    result = compiled(model, "inductor")(*inputs)
    torch.testing.assert_close(result, eager, rtol=1e-4, atol=1e-4)
    wanted, got = (torch.autograd.grad(c.sum(), inputs) for c in (eager, result))
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
def test_inductor_hands_over_transposed_views(seed: int) -> None:
    """The operator takes its operands in the layout they have: Inductor copies none into another layout before it."""
    a, b = make((500, 400), "cuda"), make((300, 500), "cuda")
    f = compiled(lambda a, b: mm32.matmul(a.T, b.T) + 1, "inductor")
    f(a, b)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    eager = mm32.matmul(a.T, b.T) + 1
    eager_peak = torch.cuda.memory_stats()["requested_bytes.all.peak"] - before
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    result = f(a, b)
    peak = torch.cuda.memory_stats()["requested_bytes.all.peak"] - before
    assert peak <= eager_peak
    assert_same(result, eager)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["auto", "simt", "tensorcore"])
def test_reduce_overhead(kernel: str, seed: int) -> None:
    """A graph is recorded at the second or third call, and replayed with other data after that."""
    f = torch.compile(
        lambda a, b, bias: mm32.matmul(a, b, bias=bias, activation="relu", kernel=kernel) * 2,
        fullgraph=True,
        mode="reduce-overhead",
    )
    b, bias = make((300, 65), "cuda"), make((65,), "cuda")
    for _ in range(6):
        a = make((130, 300), "cuda")
        torch.compiler.cudagraph_mark_step_begin()
        with torch.no_grad():
            got = f(a, b, bias).clone()
        expected, tolerance = reference(a, b, bias, "relu")
        assert_close(got, 2 * expected, 2 * tolerance)


@pytest.mark.gpu
def test_reduce_overhead_trains(seed: int) -> None:
    layers, other = Layers().cuda(), Layers().cuda()
    other.load_state_dict(layers.state_dict())
    fast = torch.compile(layers, fullgraph=True, mode="reduce-overhead")
    for _ in range(5):
        x = make((33, 4), "cuda")
        torch.compiler.cudagraph_mark_step_begin()
        for one in (fast, other):
            one.zero_grad()
            one(x).square().sum().backward()
        for p, q in zip(layers.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-3)
