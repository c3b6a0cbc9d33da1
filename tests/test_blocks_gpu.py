"""Products in blocks on a card: moderate shapes with small limits, compared with float64, with the product in one piece, and with
the limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import mm32
from mm32 import activations, gemm, numerics, prepared, settings
from mm32 import plan as planning
from mm32.bench import families, measure
from mm32.cuda import launch
from mm32.gemm import LAYOUTS

pytestmark = pytest.mark.gpu
MIB = 2**20
U = 2.0**-24
KERNELS = ["tensorcore", "mma"]


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    """Restore the limit after the test."""
    before = settings._limit
    yield
    settings._limit = before
    prepared.CACHE.clear()


def runs(kernel: str) -> None:
    if why := planning.unsupported(kernel, launch.card_of(0)):
        pytest.skip(why)


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda")


def operands(layout: str, m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    a = randn(m, k) if layout[0] == "n" else randn(k, m).T
    b = randn(k, n) if layout[1] == "n" else randn(n, k).T
    return a, b


def planned(
    a: torch.Tensor, b: torch.Tensor, kernel: str, out: torch.Tensor | None = None, **options: Any
) -> planning.Plan:
    shape = gemm.result_shape(a.shape, b.shape)
    target = torch.empty(shape, device="meta") if out is None else out
    return prepared.planned(gemm.describe(a, b, None, target, **options), 0, kernel)


def in_blocks(limit: int | str, a: torch.Tensor, b: torch.Tensor, kernel: str, **options: Any) -> torch.Tensor:
    """Return the product, computed in blocks within a limit; assert that the memory that it takes is within the limit too."""
    mm32.set_workspace_limit(limit)
    assert planned(a, b, kernel, precision=options.get("precision", "fp32")).blocks is not None
    mm32.matmul(a, b, kernel=kernel, **options)  # compiles the kernels
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    c = mm32.matmul(a, b, kernel=kernel, **options)
    most = settings.bytes_of(limit)
    assert most is not None
    # torch's allocator gives out up to 1 MiB more than was asked for, for each of two allocations.
    assert torch.cuda.max_memory_allocated() - before <= 4 * c.numel() + 2 * MIB + most
    return c


def errors(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, truth: torch.Tensor | None = None) -> tuple[float, float]:
    """Return the normwise error, and the componentwise one in units of u |A||B|."""
    truth = a.double() @ b.double() if truth is None else truth
    off = (c.double() - truth).abs()
    size = a.double().abs() @ b.double().abs()
    return float(off.norm() / truth.norm()), float((off / (U * size).clamp_min(1e-300)).max())


# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(1000, 900, 4000), (1537, 513, 3001), (600, 500, 20000), (2047, 1999, 801)], ids=str)
def test_errors_are_within_the_bound(kernel: str, layout: str, shape: tuple[int, int, int], seed: int) -> None:
    runs(kernel)
    m, n, k = shape
    a, b = operands(layout, m, n, k)
    c = in_blocks("8MiB", a, b, kernel)
    of_blocks, of_torch = errors(c, a, b), errors(a @ b, a, b)
    assert of_blocks[0] <= max(of_torch[0], 4 * U)
    assert of_blocks[1] <= max(1.5 * of_torch[1], 4)
    bound = numerics.bound(k) if kernel == "tensorcore" else numerics.bound(k, "mma", kept_bits=24, width=8)
    assert of_blocks[1] <= bound


@pytest.mark.parametrize("activation", [None, *activations.names()])
@pytest.mark.parametrize("transposed", [False, True])
def test_every_epilogue_is_applied_once(activation: str | None, transposed: bool, seed: int) -> None:
    """It is applied after the sum of all spans, also to a C that lies along M and to one with gaps."""
    kernel = planning.emulated_kernel(launch.card_of(0))
    a, b, bias = randn(700, 5000), randn(5000, 900), randn(900)
    store = torch.full((950, 720), 7.0, device="cuda")
    out = store[:900, :700].T if transposed else store.view(-1)[: 720 * 950].view(720, 950)[:700, :900]
    wanted = mm32.matmul(a, b, bias=bias, activation=activation, kernel=kernel)
    mm32.set_workspace_limit("8MiB")
    assert planned(a, b, kernel, out).blocks.spans > 1
    got = mm32.matmul(a, b, bias=bias, activation=activation, kernel=kernel, out=out)
    assert got is out
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-3)
    untouched = store.clone()
    (untouched[:900, :700].T if transposed else untouched.view(-1)[: 720 * 950].view(720, 950)[:700, :900]).fill_(7.0)
    assert bool((untouched == 7.0).all()), "beside C nothing is written"


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("precision", ["fp32", "bf16x6", "tf32"])
def test_precisions(kernel: str, precision: str, seed: int) -> None:
    runs(kernel)
    if planning.unsuited(kernel, gemm.from_layout("nn", 8, 8, 8, precision=precision)):  # type: ignore[arg-type]
        pytest.skip("not of this kernel")
    a, b = randn(6144, 8192), randn(8192, 6144)
    c = in_blocks("64MiB", a, b, kernel, precision=precision)
    assert errors(c, a, b)[0] <= (1e-3 if precision == "tf32" else 1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
def test_nan_and_inf_are_where_they_belong(kernel: str, seed: int) -> None:
    runs(kernel)
    a, b = randn(800, 5000), randn(5000, 700)
    a[3, 17], a[500, 4999], b[2600, 650], b[0, 1] = torch.nan, torch.inf, -torch.inf, torch.nan
    c, wanted = in_blocks("8MiB", a, b, kernel), a @ b
    assert torch.equal(c.isnan(), wanted.isnan())
    assert torch.equal(c.isinf(), wanted.isinf())
    finite = wanted.isfinite()
    assert torch.equal(c[wanted.isinf()], wanted[wanted.isinf()])
    torch.testing.assert_close(c[finite], wanted[finite], rtol=1e-4, atol=1e-3)
    a.fill_(torch.nan)
    assert bool(mm32.matmul(a, b, kernel=kernel).isnan().all())


def test_sums_that_cancel_within_spans_are_found(seed: int) -> None:
    """A = 1 + 1e-3 randn against columns of alternating signs (docs/numerics.md): every span cancels as the whole does."""
    kernel = planning.emulated_kernel(launch.card_of(0))
    runs("tensorcore")  # mma does not look for such sums
    a, b = 1 + 1e-3 * randn(1024, 8192), randn(1024).expand(8192, 1024).clone()
    b[1::2] *= -1
    whole = errors(mm32.matmul(a, b, kernel=kernel), a, b)
    of_blocks = errors(in_blocks("16MiB", a, b, kernel), a, b)
    of_torch = errors(a @ b, a, b)
    assert of_blocks[0] <= max(1.5 * of_torch[0], 1.5 * whole[0])


@pytest.mark.parametrize("family", families.FAMILIES, ids=lambda family: family.name)
def test_hard_families(family: families.Family) -> None:
    """Each family of docs/families.md is held to torch's error by the rule of that page. Blocks are as large as those of an
    ordinary limit: smaller ones have no lower tier, and what they recompute has the error of multiply-adds."""
    runs("tensorcore")  # mma does not find sums that cancel
    a, b = family.inputs(2048, 4096, 2048)
    c = in_blocks("48MiB", a, b, "tensorcore")
    truth, size = measure.truth_of(measure.Case(2048, 2048, 4096), (a, b, None), None)
    ours, torchs = families.errors(c, truth, size), families.errors(a @ b, truth, size)
    assert families.keeps(ours, torchs), (ours, torchs)


@pytest.mark.parametrize("kernel", KERNELS)
def test_batches(kernel: str, seed: int) -> None:
    runs(kernel)
    for a, b in (
        (randn(7, 600, 1000), randn(7, 1000, 500)),
        (randn(3, 4, 500, 700).mT.contiguous().mT, randn(4, 700, 400)),
        (randn(6, 1501, 2003)[:, :1500, :2001], randn(2001, 700)),
    ):
        c = in_blocks("6MiB", a, b, kernel)
        truth = a.double() @ b.double()
        assert float((c.double() - truth).norm() / truth.norm()) < 1e-6


def test_a_graph_replays_on_other_data(seed: int) -> None:
    kernel = planning.emulated_kernel(launch.card_of(0))
    a, b, bias, out = randn(1000, 5000), randn(5000, 900), randn(900), torch.empty(1000, 900, device="cuda")
    mm32.set_workspace_limit("8MiB")
    mm32.matmul(a, b, bias=bias, activation="gelu", kernel=kernel, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        mm32.matmul(a, b, bias=bias, activation="gelu", kernel=kernel, out=out)
    for scale in (1.0, 1e-3):
        a.copy_(randn(1000, 5000) * scale)
        b.copy_(torch.exp(4 * randn(5000, 900)))  # needs another tier
        graph.replay()
        replayed = out.clone()
        assert torch.equal(replayed, mm32.matmul(a, b, bias=bias, activation="gelu", kernel=kernel))


def test_the_same_bits_each_time_and_on_other_streams(seed: int) -> None:
    kernel = planning.emulated_kernel(launch.card_of(0))
    a, b = randn(1000, 5000), randn(5000, 900)
    first = in_blocks("8MiB", a, b, kernel)
    streams, results = [torch.cuda.Stream() for _ in range(3)], []
    torch.cuda.synchronize()
    for stream in streams:
        with torch.cuda.stream(stream):
            results += [mm32.matmul(a, b, kernel=kernel) for _ in range(2)]
    torch.cuda.synchronize()
    assert all(torch.equal(first, c) for c in results)


def test_gradients_and_compiled_code(seed: int) -> None:
    mm32.set_workspace_limit("8MiB")
    a, b = randn(1000, 3000).requires_grad_(), randn(3000, 900).requires_grad_()
    kernel = planning.emulated_kernel(launch.card_of(0))
    product = torch.compile(lambda x, y: mm32.matmul(x, y, activation="tanh", kernel=kernel), fullgraph=True)
    c, wanted = product(a, b), torch.tanh(a @ b)
    torch.testing.assert_close(c, wanted, rtol=1e-4, atol=1e-3)
    of_c, of_wanted = torch.autograd.grad(c.sum(), (a, b)), torch.autograd.grad(wanted.sum(), (a, b))
    for got, expected in zip(of_c, of_wanted, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=5e-2)


def test_tiers_count_each_product(seed: int) -> None:
    kernel = planning.emulated_kernel(launch.card_of(0))
    a, b = randn(1000, 5000), randn(5000, 900)
    in_blocks("8MiB", a, b, kernel)
    mm32.stats(reset=True)
    mm32.matmul(a, b, kernel=kernel)
    assert mm32.stats().tiers["fp16x3"] == planned(a, b, kernel).blocks.products


def test_the_drop_in_keeps_the_limit(seed: int) -> None:
    a, b = randn(4096, 4096), randn(4096, 4096)
    wanted = a @ b
    mm32.set_workspace_limit("100MiB")
    with mm32.enabled():
        torch.mm(a, b)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        got = torch.mm(a, b)
        taken = torch.cuda.max_memory_allocated() - before
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-2)
    assert taken <= 4 * got.numel() + 512 + 100 * MIB


def test_where_memory_is_short_blocks_are_tried(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """No allocation of more than 100 MiB succeeds in this test."""
    kernel = planning.emulated_kernel(launch.card_of(0))
    a, b = randn(6144, 6144), randn(6144, 6144)
    whole, real = mm32.matmul(a, b, kernel=kernel), launch._empty

    def short(size: tuple[int, ...], *rest: Any, **options: Any) -> torch.Tensor:
        if size[0] > 100 * MIB:
            raise torch.OutOfMemoryError("out of memory, as this test has it")
        return real(size, *rest, **options)

    monkeypatch.setattr(launch, "_empty", short)
    prepared.CACHE.clear()
    with pytest.warns(UserWarning, match="in blocks with"):
        got = mm32.matmul(a, b, kernel=kernel)
    torch.testing.assert_close(got, whole, rtol=1e-4, atol=1e-2)
    assert torch.equal(mm32.matmul(a, b, kernel=kernel), got)
