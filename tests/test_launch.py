"""What only the card shows: streams, graphs, threads, memory, offsets past 2^31, every tile of every kernel form."""

from __future__ import annotations

import dataclasses
import gc
import random
import threading
import time
from collections.abc import Iterator

import pytest
import torch

import mm32
from mm32 import gemm, prepared
from mm32 import plan as planning
from mm32.cuda import launch
from support.gpu import (
    CUDA,
    MATRIX_STORES,
    Placed,
    Runner,
    Store,
    assert_close,
    check,
    forget_plans,
    random_matrix,
    reference,
)

pytestmark = pytest.mark.gpu


@pytest.fixture(params=CUDA)
def run(request: pytest.FixtureRequest) -> Runner:
    return request.param


@pytest.fixture
def room() -> Iterator[None]:
    """40 GB of free device memory, given back afterwards."""
    torch.cuda.empty_cache()
    if torch.cuda.mem_get_info()[0] < 40e9:
        pytest.skip("needs 40 GB of free device memory")
    yield
    torch.cuda.empty_cache()


def clear_plans() -> None:
    planning.cost.of.cache_clear()
    prepared.CACHE.clear()


@pytest.fixture
def forget() -> Iterator[None]:
    """Nothing planned or loaded before the test is used in it, and no plan of the test is used afterwards."""
    clear_plans()
    launch._kernels.clear()
    yield
    clear_plans()


def requested(when: str) -> int:
    """Return the bytes that tensors asked torch's allocator for; these are exact, while what it hands out is rounded."""
    gc.collect()  # so that nothing that earlier tests left is freed in the middle of this one
    return torch.cuda.memory_stats()[f"requested_bytes.all.{when}"]


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda")


def workspace_of(run: Runner, a: torch.Tensor, b: torch.Tensor) -> int:
    """Return the bytes that the plan needs in addition to operands and output."""
    out = torch.empty(gemm.result_shape(a.shape, b.shape), device="meta")
    made = planning.plan(gemm.describe(a, b, None, out), launch.card_of(a.device.index), run.kernel)
    return made.workspace.bytes if made.workspace is not None else 0


# ---------------------------------------------------------------------------------------------------------------------
# Memory


@pytest.mark.parametrize("kind", ["transposed", "padded", "stepped", "expanded", "batched"])
def test_no_operand_is_copied(run: Runner, kind: str, seed: int) -> None:
    """Device memory grows by the output, and at its peak by no more than the output and the plan's workspace."""
    a, b = {
        "transposed": lambda: (randn(500, 400).T, randn(300, 500).T),
        "padded": lambda: (randn(400, 501)[:, :500], randn(500, 303)[:, :300]),
        "stepped": lambda: (randn(800, 1500)[::2, ::3], randn(500, 600)[:, ::2]),
        "expanded": lambda: (randn(1, 500).expand(400, 500), randn(500, 1).expand(500, 300)),
        "batched": lambda: (randn(500, 8, 400).permute(1, 2, 0), randn(500, 300).expand(8, 500, 300)),
    }[kind]()
    run(a, b)  # compiles and loads the kernels
    before = requested("current")
    torch.cuda.reset_peak_memory_stats()
    result = run(a, b)
    grown, peak = requested("current") - before, requested("peak") - before
    assert grown == result.numel() * 4
    assert peak <= result.numel() * 4 + workspace_of(run, a, b)


def test_out_allocates_nothing_but_workspace(run: Runner, seed: int) -> None:
    a, b, out = randn(500, 400).T, randn(300, 500).T, torch.empty(400, 300, device="cuda")
    run(a, b, out=out)
    before = requested("current")
    torch.cuda.reset_peak_memory_stats()
    run(a, b, out=out)
    assert requested("current") == before
    assert requested("peak") - before <= workspace_of(run, a, b)


def test_the_first_call_allocates_one_output(run: Runner, forget: None, seed: int) -> None:
    a, b = randn(500, 400).T, randn(300, 500).T
    before = requested("current")
    torch.cuda.reset_peak_memory_stats()
    result = run(a, b)
    assert requested("peak") - before <= result.numel() * 4 + workspace_of(run, a, b)


# ---------------------------------------------------------------------------------------------------------------------
# Streams and graphs

LONG = 400_000_000  # clock cycles, 0.2 s or more


def test_runs_in_order_on_the_current_stream(run: Runner, seed: int) -> None:
    """A product sees the results of work queued before it on the same stream, however late that work runs."""
    a, b, late = torch.zeros(130, 70, device="cuda"), randn(70, 90), randn(130, 70)
    run(a, b)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG // 4)
        a.copy_(late)
        result = run(a, b)
        doubled = result * 2
    torch.cuda.current_stream().wait_stream(stream)
    expected, tolerance = reference(late, b)
    assert_close(result, expected, tolerance)
    assert torch.equal(doubled, result * 2)


def test_does_not_wait_for_the_device(run: Runner, seed: int) -> None:
    a, b = randn(130, 70), randn(70, 90)
    run(a, b)
    torch.cuda.synchronize()
    done = torch.cuda.Event()
    torch.cuda._sleep(LONG)
    start = time.perf_counter()
    run(a, b)
    seconds = time.perf_counter() - start
    done.record()
    assert not done.query(), "the call returned after the work before it was done"
    assert seconds < 0.1
    torch.cuda.synchronize()


@pytest.mark.parametrize("layout", [("row", "row"), ("col", "col")])
def test_captured_in_a_graph(run: Runner, layout: tuple[str, str], seed: int) -> None:
    """A replay uses the operands' values at that time, in the shapes and storage of the capture."""
    a = Placed(randn(3, 65, 130), Store((0, *MATRIX_STORES[layout[0]].order)), "cuda").view
    b = Placed(randn(130, 70), MATRIX_STORES[layout[1]], "cuda").view
    bias, out = randn(70), torch.empty(3, 65, 70, device="cuda")
    run(a, b, bias=bias, activation="relu")
    run(a, b, bias=bias, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = run(a, b, bias=bias, activation="relu")
        run(a, b, bias=bias, out=out)
    for _ in range(3):
        a.copy_(randn(3, 65, 130)), b.copy_(randn(130, 70)), bias.copy_(randn(70))
        result.fill_(float("nan")), out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert_close(result, *reference(a, b, bias, "relu"))
        assert_close(out, *reference(a, b, bias))


# ---------------------------------------------------------------------------------------------------------------------
# The fast path (test_launch_host.py tests what can be seen of it without a card)


def test_later_calls_compute_as_the_first(run: Runner, forget: None, seed: int) -> None:
    """Later calls are right with other operands of the same form, on another stream, into `out`, and with gradients after calls
    without."""
    weight = torch.nn.Parameter(randn(70, 130))
    bias, out = randn(70), torch.empty(65, 70, device="cuda")
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()) * 2:
        with torch.cuda.stream(stream):
            x = randn(65, 130)
            expected = reference(x, weight.detach().T, bias, "relu", run.kernel)
            with torch.no_grad():
                assert_close(mm32.linear(x, weight, bias, activation="relu", kernel=run.kernel), *expected)
                assert run(x, weight.T, bias=bias, activation="relu", out=out) is out
                assert_close(out, *expected)
            weight.grad = None
            recorded = mm32.linear(x, weight, bias, activation="relu", kernel=run.kernel)
            assert_close(recorded.detach(), *expected)
            recorded.sum().backward()
            slope = (recorded.detach() > 0).float()
            assert weight.grad is not None
            assert_close(weight.grad, *reference(slope.T, x, kernel=run.kernel))
            stream.synchronize()


def test_torchs_own_product_does_not_come_back_to_mm32(forget: None, seed: int) -> None:
    """Kernel "torch" runs torch's product, also while mm32.enable() has taken over torch's products."""
    a, b = randn(16384, 16), randn(16, 16384)
    if "kernel     torch" not in mm32.explain(a, b):
        pytest.skip("the planner takes a kernel of mm32's here")
    wanted = [mm32.matmul(a, b) for _ in range(3)]
    with mm32.enabled():
        mm32.stats(reset=True)
        got = [mm32.matmul(a, b) for _ in range(3)]
        counted = mm32.stats()
    assert counted.kernels == counted.reasons == {}
    assert all(torch.equal(x, wanted[0]) for x in (*wanted, *got))


# ---------------------------------------------------------------------------------------------------------------------
# Threads


def test_threads_that_have_not_used_cuda(run: Runner, forget: None, seed: int) -> None:
    """Eight threads run at once, each on its own stream, all with the same kernels, which none has loaded before."""
    problems = [(randn(33 + i, 17 * i + 1), randn(17 * i + 1, 65 - i)) for i in range(8)]
    torch.cuda.synchronize()
    gate, results, errors = threading.Barrier(8), {}, []

    def work(i: int) -> None:
        try:
            gate.wait(60)
            with torch.cuda.stream(torch.cuda.Stream()):
                results[i] = [run(*problems[i]) for _ in range(50)]
                torch.cuda.current_stream().synchronize()
        except BaseException as error:
            errors.append(error)
            gate.abort()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for i, (a, b) in enumerate(problems):
        for result in results[i]:
            assert_close(result, *reference(a, b), what=f"thread {i}")


def test_first_call_of_a_bare_thread(run: Runner, forget: None, seed: int) -> None:
    """The thread has run no torch operation, neither an allocation nor a stream, that would have bound a CUDA context to it."""
    a, b, out = randn(65, 33), randn(33, 70), torch.empty(65, 70, device="cuda")
    torch.cuda.synchronize()
    errors = []

    def work() -> None:
        try:
            run(a, b, out=out)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert errors == []
    assert_close(out, *reference(a, b))


# ---------------------------------------------------------------------------------------------------------------------
# 64-bit offsets


@pytest.mark.parametrize(
    "case", ["a_rows", "a_depth", "b_rows", "b_columns", "out_rows", "out_columns", "bias", "batch"]
)
def test_strides_past_2_to_31(run: Runner, case: str, room: None, seed: int) -> None:
    """Some elements lie more than 2^31 elements after the first: there are 3 rows, columns or matrices, 2^30 + 36 apart."""
    far = 2**30 + 36
    base = torch.empty(2 * far + 4096, device="cuda")

    def distant(*shape: int, dim: int) -> torch.Tensor:
        strides = [0, 0, 0][: len(shape)]
        strides[dim] = far
        reach = 1
        for d in reversed([d for d in range(len(shape)) if d != dim]):
            strides[d], reach = reach, reach * shape[d]
        view = base.as_strided(shape, strides)
        return view.copy_(randn(*shape))

    a, b, bias, out = randn(3, 8), randn(8, 3), None, None
    if case == "a_rows":
        a = distant(3, 8, dim=0)
    elif case == "a_depth":
        a, b = distant(5, 3, dim=1), randn(3, 6)
    elif case == "b_rows":
        a, b = randn(5, 3), distant(3, 6, dim=0)
    elif case == "b_columns":
        b = distant(8, 3, dim=1)
    elif case == "out_rows":
        out = distant(3, 3, dim=0)
    elif case == "out_columns":
        out = distant(3, 3, dim=1)
    elif case == "bias":
        bias = distant(3, dim=0)
    else:
        a, b = distant(3, 4, 8, dim=0), randn(3, 8, 5)
    try:
        result = run(a, b, bias=bias, out=out)
    except planning.Unplannable as error:
        assert run.kernel == "direct"
        assert case.startswith(("a_", "b_"))
        pytest.skip(str(error))
    assert_close(result, *reference(a, b, bias), what=case)


@pytest.mark.parametrize(("m", "n"), [(65539, 32771), (3, 2**30 + 5), (2**30 + 5, 3)], ids=["square", "wide", "tall"])
def test_more_than_2_to_31_results(run: Runner, m: int, n: int, room: None, seed: int) -> None:
    """Operands are integers, so that chunks of the result compare exactly; the output is 8.6 to 12.9 GB."""
    assert m * n > 2**31
    a = torch.randint(-30, 31, (m, 2), device="cuda", dtype=torch.int8).float()
    b = torch.randint(-26, 27, (2, n), device="cuda", dtype=torch.int8).float()
    try:
        result = run(a, b)
    except planning.Unplannable as error:
        pytest.skip(str(error))
    torch.cuda.synchronize()
    rows = max(1, 2**27 // n)
    columns = min(n, 2**27)
    for i in range(0, m, rows):
        for j in range(0, n, columns):
            x, y = a[i : i + rows], b[:, j : j + columns]
            expected = x[:, :1] * y[:1] + x[:, 1:] * y[1:]
            assert torch.equal(result[i : i + rows, j : j + columns], expected), (i, j)


def test_more_than_65535_matrices(run: Runner, seed: int) -> None:
    """The number of matrices exceeds the limit of a grid's second and third dimension, and the batches cannot be merged."""
    a, b = randn(300, 234, 2, 3), randn(234, 300, 3, 2).transpose(0, 1)
    assert_close(run(a, b), *reference(a, b))


def test_k_past_2_to_31() -> None:
    """One value is expanded over K = 2^31 + 64 * 256: it takes no memory, and each of 256 partial sums stays exact."""
    k = 2**31 + 64 * 256
    one = torch.ones(1, device="cuda")
    got = mm32.matmul(one.expand(1, k), one.expand(k, 1), kernel="dot")
    assert got.item() == 2**31 + 64 * 256


# ---------------------------------------------------------------------------------------------------------------------
# Every form of the simt kernel at its own edges


@pytest.mark.parametrize("tile", planning.fma.SIMT_TILES, ids=lambda t: f"{t.m}x{t.n}x{t.k}")
@pytest.mark.parametrize("a_name", ["row", "col", "stepped"])
@pytest.mark.parametrize("b_name", ["row", "col", "stepped"])
@pytest.mark.parametrize("how", ["whole", "parts", "stream"])
def test_simt_tiles(
    tile: planning.fma.SimtTile,
    a_name: str,
    b_name: str,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    forget: None,
    rng: random.Random,
) -> None:
    """Small problems would never get the large tiles, so here each tile is the only one, with sizes just around it. Wherever it
    is possible, or nowhere, K is split, or the tiles beyond whole waves of three multiprocessors are shared."""
    monkeypatch.setattr(planning.fma, "SIMT_TILES", (dataclasses.replace(tile, aligned=False),))
    monkeypatch.setattr(planning.fma, "NARROW", 0)
    monkeypatch.setitem(planning.cost.SHARES, "reduce.launches", -1e6 if how == "parts" else 1e6)
    monkeypatch.setitem(planning.cost.SHARES, "fixup.launches", -1e6 if how == "stream" else 1e6)
    small = dataclasses.replace(launch.card_of(0), sms=3)
    monkeypatch.setattr(launch, "card_of", lambda index: small)
    launched: set[str] = set()
    inner = launch.Executable.__init__

    def noted(self: launch.Executable, plan: planning.Plan, index: int) -> None:
        launched.update(step.entry for step in plan.launches)
        inner(self, plan, index)

    monkeypatch.setattr(launch.Executable, "__init__", noted)
    run = Runner("cuda", "simt")
    for m in (1, tile.m - 1, tile.m, tile.m + 1, 9 * tile.m + 3):
        for n in (2, tile.n - 3, tile.n, tile.n + 5):
            for k in (
                1,
                tile.k - 1,
                tile.k * (tile.stages - 1),
                tile.k * tile.stages + 1,
                5 * tile.k * tile.stages,
            ):
                a, at = random_matrix(rng, m, k, a_name, "cuda")
                b, bt = random_matrix(rng, k, n, b_name, "cuda")
                out = Placed((m, n), Store(pad=rng.choice((0, 1, 4))), "cuda")
                check(run, a, b, out=out, what=f"M={m} N={n} K={k}, a {at}, b {bt}")
    more = {"whole": set(), "parts": {"mm32_reduce"}, "stream": {"mm32_fixup"}}
    assert launched == {"mm32_simt", *more[how]}


def test_stream_k_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch, forget: None) -> None:
    """Every run has the same bits, with batches, an epilogue, and a tile that is the sum of more than eight pieces."""
    tile = planning.fma.SIMT_TILES[0]
    monkeypatch.setattr(planning.fma, "SIMT_TILES", (tile,))
    monkeypatch.setitem(planning.cost.SHARES, "fixup.launches", -1e6)
    a, b, bias = randn(3, 5 * tile.m, 3000), randn(3000, 9 * tile.n), randn(9 * tile.n)
    card = launch.card_of(0)
    for sms in (134, 67, 45, 11):  # of 135 tiles, 1, 1, 0 and 3 are shared
        clear_plans()
        device = dataclasses.replace(card, sms=sms)
        monkeypatch.setattr(launch, "card_of", lambda index, device=device: device)

        def product() -> torch.Tensor:
            return mm32.matmul(a, b, bias=bias, activation="relu", kernel="simt", precision="ieee")

        first = product()
        made = planning.plan(gemm.describe(a, b, bias, first, "relu", "ieee"), device, "simt")
        assert ("mm32_fixup" in [step.entry for step in made.launches]) == (sms != 45)
        for _ in range(5):
            assert torch.equal(first, product())
        truth = torch.relu(a.double() @ b.double() + bias)
        assert ((first - truth).abs() <= 3000 * 2.0**-24 * (a.double().abs() @ b.double().abs() + bias.abs())).all()


@pytest.mark.parametrize("shared", ["no", "by partial sums", "by clusters"])
@pytest.mark.parametrize("name", ["row", "col", "row_padded_by_1", "stepped"])
def test_narrow_forms(
    name: str, shared: str, monkeypatch: pytest.MonkeyPatch, forget: None, rng: random.Random
) -> None:
    """Each form runs with K shared in each way wherever it can be, and with K shared nowhere: the others are estimated to take a
    second, this one to take none. Some sums have more than 1024 products for each lane."""
    monkeypatch.setitem(planning.cost.SHARES, "reduce.launches", -1e6 if shared == "by partial sums" else 1e6)
    monkeypatch.setitem(planning.cost.SHARES, "narrow.cluster.launches", -1e6 if shared == "by clusters" else 1e6)
    run = Runner("cuda", "simt")
    every = planning.fma.NARROW_FORMS
    for form in every:
        monkeypatch.setattr(planning.fma, "NARROW_FORMS", (form, *(f for f in every if f.along_k != form.along_k)))
        forget_plans()
        for rows in (form.tile - 1, form.tile, 3 * form.tile + 4):
            for k in (form.piece - 1, form.piece, 5 * form.piece + 4, 40000):
                for m, n in ((rows, form.width), (form.width, rows)):
                    a, at = random_matrix(rng, m, k, name, "cuda")
                    b, bt = random_matrix(rng, k, n, name, "cuda")
                    out = Placed((m, n), Store(pad=rng.choice((0, 1, 4))), "cuda")
                    check(run, a, b, out=out, what=f"M={m} N={n} K={k}, a {at}, b {bt}")


def test_a_grid_smaller_than_the_problem(run: Runner, monkeypatch: pytest.MonkeyPatch, forget: None, seed: int) -> None:
    """Blocks take several units of work each, as they do beyond 2^31 - 1 units: here the limit is set to 3 blocks."""
    monkeypatch.setattr(planning.card, "MAX_GRID", 3)
    shapes = (((5, 70, 33), (5, 33, 66)), ((300, 200), (200, 280)), ((1, 5), (5, 1)), ((900, 3000), (3000, 5)))
    for a, b in ((randn(*x), randn(*y)) for x, y in shapes):
        assert_close(run(a, b), *reference(a, b))


# ---------------------------------------------------------------------------------------------------------------------
# Refusals


def test_devices_must_match(run: Runner) -> None:
    on_cpu, on_card = torch.randn(3, 3), randn(3, 3)
    for a, b, bias in ((on_cpu, on_card, None), (on_card, on_cpu, None), (on_card, on_card, on_cpu[0])):
        with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*c(pu|uda:0)"):
            run(a, b, bias=bias)
    with pytest.raises(RuntimeError, match=r"out must be a dense torch.float32 tensor on cuda:0.*on cpu"):
        run(on_card, on_card, out=torch.empty(3, 3))


def test_float64_is_for_the_cpu(run: Runner) -> None:
    with pytest.raises(
        RuntimeError, match=r"takes torch.float32 on cuda; a is torch.float64: convert it \(a.float\(\)\)"
    ):
        run(randn(3, 3).double(), randn(3, 3).double())


def test_explain_names_the_card(run: Runner) -> None:
    page = mm32.explain(randn(300, 200).T, randn(300, 100), kernel=run.kernel)
    assert "M=200 N=100 K=300, layout tn" in page
    assert torch.cuda.get_device_name() in page
    assert f"kernel     {run.kernel if run.kernel != 'auto' else ''}" in page
