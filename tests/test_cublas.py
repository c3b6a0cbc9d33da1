"""torch's own product among the choices of "auto": when it is a choice, and that its result is what mm32.matmul promises."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import pytest
import torch

import mm32
from mm32 import activations, gemm, prepared, torch_product
from mm32 import plan as planning
from mm32.cuda import cublas, launch
from mm32.gemm import from_layout
from mm32.plan import H200, Card

SMALL = (256, 256, 256)


def planned(a: torch.Tensor, b: torch.Tensor, torch_too: bool = True) -> planning.Plan:
    out = torch.empty(gemm.result_shape(a.shape, b.shape), device="meta")
    return planning.plan(gemm.describe(a, b, None, out), H200, torch="fp32" if torch_too else None)


def empty(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, device="meta")


def test_small_products_are_torchs() -> None:
    made = planned(empty(1, 4096), empty(4096, 4096))
    assert made.kernel == "torch"
    assert made.launches == ()
    assert made.workspace is None
    assert "torch's own product" in made.explain()
    assert made.estimates[0][0] == "torch"


def test_it_is_chosen_only_where_it_is_asked_for_and_fast() -> None:
    small, large = from_layout("nn", *SMALL), from_layout("nn", 4096, 4096, 4096)
    assert planning.plan(small, H200).kernel != "torch"
    assert planning.plan(large, H200, torch="fp32").kernel == "tensorcore"
    assert "torch" in dict(planning.plan(large, H200, torch="fp32").estimates)
    for kernel in planning.KERNELS:
        assert planning.plan(small, H200, kernel, torch="fp32").kernel == kernel
    assert planning.plan(from_layout("nn", *SMALL, precision="tf32"), H200, torch="fp32").kernel != "torch"
    assert planning.plan(from_layout("nn", *SMALL, precision="ieee"), H200, torch="fp32").kernel == "torch"
    assert planning.plan(from_layout("nn", 0, 8, 8), H200, torch="fp32").kernel != "torch"
    assert planning.plan(from_layout("nn", 8, 8, 0), H200, torch="fp32").kernel != "torch"
    with pytest.raises(ValueError, match="unknown kernel 'torch'"):
        planning.plan(small, H200, "torch", torch="fp32")


@pytest.mark.parametrize(
    ("a", "taken"),
    [
        (empty(256, 256), True),
        (empty(256, 256).T, True),
        (empty(256, 300)[:, :256], True),
        (empty(256, 512)[:, ::2], False),
        (empty(256, 1).expand(256, 256), False),
        (empty(1, 256).expand(256, 256), False),
        (empty(4, 256, 256), True),
        (empty(1, 256, 256).expand(4, 256, 256), True),
        (empty(2, 3, 256, 256).transpose(0, 1), False),
    ],
)
def test_no_operand_is_copied_for_it(a: torch.Tensor, taken: bool) -> None:
    """torch would copy an operand whose layout cuBLAS does not take, so torch's product is not a choice there."""
    b = empty(*a.shape[:-2], 256, 256)
    kernels = dict(planned(a, b).estimates)
    assert ("torch" in kernels) == taken


def test_an_epilogue_counts() -> None:
    plain, fused = from_layout("nn", *SMALL), from_layout("nn", *SMALL, bias=True, activation="relu")
    times = [dict(planning.plan(g, H200, torch="fp32").estimates)["torch"] for g in (plain, fused)]
    assert times[1] > times[0] + H200.launch


def test_views_are_the_operands() -> None:
    """A view made from a Gemm's sizes and strides has the same elements, and strides that BLAS takes for axes of one element."""
    rng = random.Random(3)
    for _ in range(300):
        rows, cols, batch = rng.choice((1, 2, 5)), rng.choice((1, 2, 7)), rng.choice((None, 1, 3))
        lead = () if batch is None else (batch,)
        x = torch.arange(60.0 * 9)[: 9 * rows * cols * (batch or 1)]
        x = x[: rows * cols * (batch or 1)].reshape(*lead, rows, cols)
        if rng.randrange(2):
            x = x.mT.contiguous().mT
        y = torch.ones(*lead, cols, 4)
        problem = gemm.describe(x, y, None, torch.empty(*lead, rows, 4), merge=False)
        sizes, strides = cublas._view(problem.batch, problem.m, problem.k, problem.a)
        view = x.as_strided(sizes, strides, x.storage_offset())
        assert torch.equal(view.reshape(x.shape), x)
        assert (strides[-1] == 1 and strides[-2] >= cols) or (strides[-2] == 1 and strides[-1] >= rows)


def test_where_there_was_no_choice_any_operands_will_do(seed: int) -> None:
    """For a card without kernels, torch's product takes operands and outputs with any strides and any number of batch dimensions.
    Here it runs on the CPU."""
    bias, old = torch.randn(7), Card("Tesla T4", (7, 5), 40, 65536)
    for a, b in (
        (torch.randn(5, 60)[:, ::2], torch.randn(30, 1).expand(30, 7)),
        (torch.randn(2, 3, 30, 5).mT.transpose(0, 1), torch.randn(3, 1, 7, 30).mT),
        (torch.randn(5, 0), torch.randn(0, 7)),
    ):
        wanted = torch.relu(a @ b + bias)
        out = torch.empty(*wanted.shape[:-1], 14)[..., ::2]
        for precision in gemm.PRECISIONS:
            made = planning.plan(gemm.describe(a, b, bias, out, "relu", precision), old, torch="fp32")
            assert made.kernel == "torch"
            assert "Tesla T4 has 7.5" in made.reason
            cublas.TorchProduct(made)(a, b, bias, out.fill_(-1.0))
            torch.testing.assert_close(out, wanted)


# ---------------------------------------------------------------------------------------------------------------------
# On the card


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch's product is estimated to take no time, and so are its passes for bias and activation."""
    monkeypatch.setattr(planning.cost.Model, "torch", lambda self, work, precision: 0.0)
    monkeypatch.setattr(planning.cost.Model, "passes", lambda self, work, count, operands: 0.0)
    prepared.CACHE.clear()
    yield
    prepared.CACHE.clear()


@contextlib.contextmanager
def tf32() -> Iterator[None]:
    """Allow torch to use TF32 inside this context."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def is_torchs(a: torch.Tensor, b: torch.Tensor, **options: object) -> bool:
    return "kernel     torch:" in mm32.explain(a, b, **options)  # type: ignore[arg-type]


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda")


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((64, 96), (96, 80)),
        ((96,), (96, 80)),
        ((64, 96), (96,)),
        ((96,), (96,)),
        ((1, 96), (96, 1)),
        ((3, 64, 96), (3, 96, 80)),
        ((3, 64, 96), (96, 80)),
        ((3, 64, 96), (1, 96, 80)),
        ((64, 1), (1, 80)),
    ],
)
@pytest.mark.parametrize("activation", [None, *activations.names()])
def test_results(a: tuple[int, ...], b: tuple[int, ...], activation: str | None, always: None, seed: int) -> None:
    x, y = randn(*a), randn(*b)
    bias = randn(y.shape[-1] if y.dim() > 1 else 1) if activation != "tanh" else None
    assert is_torchs(x, y, bias=bias, activation=activation)
    z = torch.matmul(x.double(), y.double())
    if bias is not None:
        z = z + (bias.double() if y.dim() > 1 else bias.double()[0])
    truth = torch_product.activate(z, activation)
    got = mm32.matmul(x, y, bias=bias, activation=activation)
    torch.testing.assert_close(got.double(), truth, rtol=1e-5, atol=2e-5)
    out = torch.full_like(got, float("nan"))
    assert mm32.matmul(x, y, bias=bias, activation=activation, out=out) is out
    assert torch.equal(out, got)


@pytest.mark.gpu
@pytest.mark.parametrize("layout", gemm.LAYOUTS)
def test_bits_are_torchs(layout: str, always: None, seed: int) -> None:
    a = randn(200, 120) if layout[0] == "n" else randn(120, 200).T
    b = randn(120, 90) if layout[1] == "n" else randn(90, 120).T
    assert is_torchs(a, b)
    assert torch.equal(mm32.matmul(a, b), torch.matmul(a, b))


@pytest.mark.gpu
def test_tf32_is_not_let_in(always: None, seed: int) -> None:
    """A form is first seen while torch's products are fp32, then the user asks torch for TF32. mm32's precision stays."""
    a, b = randn(256, 256), randn(256, 256)
    truth = a.double() @ b.double()
    assert torch.equal(mm32.matmul(a, b), torch.matmul(a, b))
    with tf32():
        assert float((torch.matmul(a, b) - truth).norm() / truth.norm()) > 1e-5, "torch's products are not TF32"
        for precision in ("fp32", "ieee"):
            got = mm32.matmul(a, b, precision=precision)
            assert float((got - truth).norm() / truth.norm()) < 1e-6
            assert not is_torchs(a, b, precision=precision)
    assert torch.equal(mm32.matmul(a, b), torch.matmul(a, b))


@pytest.mark.gpu
def test_deterministic_algorithms_leave_it_out(always: None, seed: int) -> None:
    """cuBLAS is deterministic only with a setting of its own, which torch insists on in this mode."""
    a, b = randn(256, 256), randn(256, 256)
    mm32.matmul(a, b)
    torch.use_deterministic_algorithms(True)
    try:
        assert not is_torchs(a, b)
        results = [mm32.matmul(a, b) for _ in range(3)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(r, results[0]) for r in results)
    assert is_torchs(a, b)


@pytest.mark.gpu
def test_torch_is_found_again_after_tf32(always: None, seed: int) -> None:
    """A form that was first seen while torch's products were TF32 is later left to torch."""
    a, b = randn(96, 96), randn(96, 96)
    with tf32():
        mm32.matmul(a, b)
    assert torch.equal(mm32.matmul(a, b), torch.matmul(a, b))


@pytest.mark.gpu
def test_under_autocast_and_the_drop_in(always: None, seed: int) -> None:
    a, b = randn(128, 128), randn(128, 128)
    wanted = torch.matmul(a, b)
    with torch.autocast("cuda"):
        got = mm32.matmul(a, b, bias=torch.zeros(128, device="cuda"))
    assert got.dtype == torch.float32
    assert torch.equal(got, wanted)
    prepared.CACHE.clear()
    with mm32.enabled():
        assert torch.equal(mm32.matmul(a, b), wanted)
    assert mm32.matmul(a.requires_grad_(), b).requires_grad


@pytest.mark.gpu
def test_in_a_graph(always: None, seed: int) -> None:
    a, b, out = randn(128, 128), randn(128, 128), torch.empty(128, 128, device="cuda")
    mm32.matmul(a, b, activation="relu", out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        mm32.matmul(a, b, activation="relu", out=out)
    a.copy_(randn(128, 128))
    graph.replay()
    assert torch.equal(out, torch.relu(torch.matmul(a, b)))


@pytest.mark.gpu
def test_where_memory_is_short(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Without memory for the workspace, a kernel that needs none runs, with a warning; a kernel named explicitly that cannot run
    without one raises torch's error."""
    a, b = randn(2048, 2048), randn(2048, 2048)
    prepared.CACHE.clear()
    described, card = gemm.describe(a, b, None, a @ b), launch.card_of(0)
    if planning.plan(described, card, torch="fp32").workspace is None:
        pytest.skip("on this card the product needs no workspace")
    instead = planning.without_workspace(described, card).kernel
    wanted = mm32.matmul(a, b, kernel=instead)
    run = launch.Executable.__call__

    def short(self: launch.Executable, *args: object) -> None:
        if self.plan.workspace is not None:
            raise torch.OutOfMemoryError("out of memory, as this test has it")
        return run(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(launch.Executable, "__call__", short)
    with pytest.warns(UserWarning, match=r"no memory for \d+ bytes of workspace"):
        got = mm32.matmul(a, b)
    assert torch.equal(got, wanted)
    deep, thin = randn(64, 65536), randn(65536, 64)
    with pytest.warns(UserWarning, match=r"kernel 'simt' without it"):
        got = mm32.matmul(deep, thin, kernel="simt")
    truth = deep.double() @ thin.double()
    assert float((got - truth).norm() / truth.norm()) < 1e-5
    with pytest.raises(torch.OutOfMemoryError):
        mm32.matmul(a, b, kernel="mma")
