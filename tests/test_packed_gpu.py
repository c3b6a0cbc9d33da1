"""Packed operands on the card: the same bits as unpacked calls, the fallback, graphs, streams, memory."""

from __future__ import annotations

import random

import pytest
import torch

import mm32
from mm32 import gemm, numerics
from mm32 import plan as planning
from mm32.cuda import launch
from mm32.gemm import LAYOUTS
from support.gpu import (
    MATRIX_STORES,
    UNIT,
    Placed,
    Store,
    assert_close,
    beyond_the_first_tier,
    reference,
)
from support.packed import SIDES, pack_sides

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _panels(panels_only: None) -> None:
    """Makes calls without packed operands pack theirs too: only then do they have the same bits."""


def placed(rows: int, columns: int, store: str, values: torch.Tensor | None = None, offset: int = 0) -> Placed:
    s = MATRIX_STORES[store]
    values = torch.randn(rows, columns, device="cuda") if values is None else values
    return Placed(values, Store(s.order, s.step, s.pad, offset, s.expand), "cuda")


def same_bits(one: torch.Tensor, two: torch.Tensor) -> bool:
    return torch.equal(one.contiguous().view(torch.int32), two.contiguous().view(torch.int32))


SIZES = [(1, 1, 256), (3, 5, 257), (17, 33, 300), (128, 128, 512), (129, 127, 513), (300, 200, 8000), (700, 900, 1000)]


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("b_store", ["row", "col", "row_padded_by_1", "stepped"])
@pytest.mark.parametrize("a_store", ["row", "col"])
def test_the_same_bits(a_store: str, b_store: str, sides: str, precision: str, rng: random.Random) -> None:
    for m, n, k in SIZES:
        a, b = placed(m, k, a_store, offset=rng.randrange(4)), placed(k, n, b_store, offset=rng.choice((0, 0, 1)))
        bias = torch.randn(n, device="cuda")
        x, y = pack_sides(a.view, b.view, sides, precision=precision)
        assert all(p.reason is None and p.nbytes > 0 for p in (x, y) if isinstance(p, mm32.PackedOperand))
        for options in ({}, {"bias": bias, "activation": "relu"}):
            plain = mm32.matmul(a.view, b.view, kernel="tensorcore", precision=precision, **options)
            for _ in range(2):
                got = mm32.matmul(x, y, precision=precision, **options)
                assert same_bits(got, plain), (m, n, k, options)
            out = Placed((m, n), MATRIX_STORES["row_padded_by_1"], "cuda")
            mm32.matmul(x, y, precision=precision, out=out.view, **options)
            assert out.intact()
            assert same_bits(out.view, plain)
        if precision == "fp32":
            assert_close(mm32.matmul(x, y), *reference(a.view, b.view), what=(m, n, k))
        assert a.unchanged()
        assert b.unchanged()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_bits_where_packing_overlaps(layout: str, seed: int) -> None:
    """At these sizes an unpacked call packs beside the multiply, and a packed one may do so for the other operand."""
    stores = {"n": "row", "t": "col"}
    for m, n, k in ((2048, 4096, 2048), (4096, 300, 4096), (256, 4096, 4096)):
        a, b = placed(m, k, stores[layout[0]]), placed(k, n, stores[layout[1]])
        plain = mm32.matmul(a.view, b.view, kernel="tensorcore")
        for sides in SIDES:
            assert same_bits(mm32.matmul(*pack_sides(a.view, b.view, sides)), plain), (m, n, k, sides)


def test_the_same_bits_for_batches(seed: int) -> None:
    a, b, stacked = torch.randn(3, 5, 17, 300), torch.randn(300, 130), torch.randn(4, 300, 33)
    a, b, stacked, left = a.cuda(), b.cuda(), stacked.cuda(), torch.randn(70, 300, device="cuda")
    for x in (a, a.permute(1, 0, 2, 3), a[:, ::2], a[0, 0]):
        assert same_bits(mm32.matmul(x, mm32.pack(b)), mm32.matmul(x, b, kernel="tensorcore"))
    packed_left = mm32.pack(left, side="left")
    assert same_bits(mm32.matmul(packed_left, stacked), mm32.matmul(left, stacked, kernel="tensorcore"))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sides", SIDES)
def test_within_the_bound_of_a_call_that_splits_its_own_operands(
    layout: str, sides: str, all_tiles: None, seed: int
) -> None:
    """With all existing tiles the sums may be in another order, but keep the same bound."""
    stores = {"n": "row", "t": "col"}
    for m, n, k in SIZES:
        a, b = placed(m, k, stores[layout[0]]), placed(k, n, stores[layout[1]])
        expected, tolerance = reference(a.view, b.view)
        plain = mm32.matmul(a.view, b.view, kernel="tensorcore")
        got = mm32.matmul(*pack_sides(a.view, b.view, sides))
        assert_close(plain, expected, tolerance, what=(m, n, k))
        assert_close(got, expected, tolerance, what=(m, n, k))
        bound = 2 * numerics.bound(k) * UNIT * (a.view.double().abs() @ b.view.double().abs())
        assert_close(got, plain.double(), bound, what=(m, n, k))


def spoiled(a: torch.Tensor, b: torch.Tensor, how: str) -> None:
    if how == "nan_in_b":
        b[7, 3] = float("nan")
    elif how == "inf_in_a":
        a[2, 5] = float("inf")
    elif how == "inf_in_b":
        b[11, 0] = -float("inf")
    elif how == "mixed_a":
        a[:, 1::2] *= 2.0**-40
        b[::2] = 0
    elif how == "mixed_b":
        b[1::2] *= 2.0**-40
        a[:, ::2] = 0
    elif how == "huge_after_the_sample":
        b[-1, :] = 1e30


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("how", ["nan_in_b", "inf_in_a", "inf_in_b", "mixed_a", "mixed_b", "huge_after_the_sample"])
def test_the_fallback_reads_the_source(how: str, sides: str, layout: str, seed: int) -> None:
    stores = {"n": "row", "t": "col"}
    a, b = torch.randn(130, 700, device="cuda"), torch.randn(700, 90, device="cuda")
    spoiled(a, b, how)
    x, y = placed(130, 700, stores[layout[0]], a).view, placed(700, 90, stores[layout[1]], b).view
    before = beyond_the_first_tier()
    plain = mm32.matmul(x, y, kernel="tensorcore", activation="relu")
    assert (after := beyond_the_first_tier()) > before, "the inputs were meant to need the fallback"
    packed_x, packed_y = pack_sides(x, y, sides)
    got = mm32.matmul(packed_x, packed_y, activation="relu")
    assert beyond_the_first_tier() > after
    assert torch.equal(got.isnan(), plain.isnan())
    if how[:3] in ("nan", "inf"):
        assert same_bits(got.nan_to_num(), plain.nan_to_num())
    else:  # the other operand's lo is scaled like that of the packed one, and the tier may differ
        assert_close(got, *reference(x, y, None, "relu", "tensorcore"), what=how)


def test_a_verdict_is_on_the_call_not_on_the_operand(seed: int) -> None:
    """Operand B suits one A and not another: each call chooses its path anew, also after a call that took the other."""
    a, b = torch.randn(70, 700, device="cuda"), torch.randn(700, 90, device="cuda")
    packed_b, bad = mm32.pack(b), a.clone()
    bad[3, 3] = float("nan")
    for x, recomputed in ((a, False), (bad, True), (a, False)):
        before = beyond_the_first_tier()
        got = mm32.matmul(x, packed_b)
        assert (beyond_the_first_tier() > before) == recomputed
        plain = mm32.matmul(x, b, kernel="tensorcore")
        assert same_bits(got.nan_to_num(), plain.nan_to_num())


@pytest.mark.parametrize("sizes", [(70, 90, 700), (768, 640, 4096)])
def test_operands_of_which_one_alone_needs_a_scaled_lo(sizes: tuple[int, int, int], seed: int) -> None:
    """Each was packed by itself, one with a scaled lo and one without, so their panels do not fit together."""
    m, n, k = sizes
    wide, plain = (torch.rand(m, k, device="cuda") - 0.5) * torch.exp(2 * torch.randn(m, k, device="cuda")), torch.randn
    b = plain(k, n, device="cuda")
    for x, y in ((wide, b), (plain(m, k, device="cuda"), (torch.rand(k, n, device="cuda") - 0.5) * b.exp().square())):
        for sides in SIDES:
            got = mm32.matmul(*pack_sides(x, y, sides))
            assert_close(got, *reference(x, y, kernel="tensorcore"), what=sides)


def test_what_is_not_packed_on_the_card_says_why(seed: int) -> None:
    a, b = torch.randn(9, 20, device="cuda"), torch.randn(20, 7, device="cuda")
    short = mm32.pack(b)
    shortest = (
        planning.emulated.SHORTEST_K if torch.cuda.get_device_capability() == (9, 0) else planning.emulated.SHORT_K
    )
    assert short.reason.startswith(f"below K={shortest}")
    assert short.nbytes == 0
    assert f"not packed: below K={shortest}" in mm32.explain(a, short)
    assert same_bits(mm32.matmul(a, short), mm32.matmul(a, b))
    ieee = mm32.pack(torch.randn(300, 7, device="cuda"), precision="ieee")
    assert ieee.reason.startswith("precision 'ieee'")
    for empty in (torch.empty(300, 0, device="cuda"), torch.empty(0, 5, device="cuda")):
        assert mm32.pack(empty).nbytes == 0
        rows = torch.randn(3, empty.shape[0], device="cuda")
        assert torch.equal(mm32.matmul(rows, mm32.pack(empty)), torch.zeros(3, empty.shape[1], device="cuda"))
    with pytest.raises(RuntimeError, match=r"takes torch.float32 on cuda; got torch.float64"):
        mm32.pack(b.double())


def test_explain_on_the_card(seed: int) -> None:
    a, b = torch.randn(90, 700, device="cuda"), mm32.pack(torch.randn(700, 70, device="cuda"))
    page = mm32.explain(a, b)
    assert "kernel     tensorcore (fp16x3): B packed beforehand" in page
    assert page.splitlines()[-1] == f"packed     {b!r}"
    assert f"{b.nbytes} bytes" in repr(b)


def test_memory_that_is_not_the_operands_is_refused(seed: int) -> None:
    a, b = torch.randn(9, 300, device="cuda"), torch.randn(300, 70, device="cuda")
    other = mm32.pack(torch.randn(300, 7, device="cuda")).memory
    multiply = torch.ops.mm32.matmul
    for wrong in (other, mm32.pack(b, precision="tf32").memory, mm32.pack(b).memory.float(), mm32.pack(b).memory.cpu()):
        with pytest.raises(RuntimeError, match="packed_b is not what mm32::pack makes of b"):
            multiply(a, b, None, None, "fp32", "auto", None, wrong)
    with pytest.raises(RuntimeError, match="packed_b is not what mm32::pack makes of b"):
        multiply(a, b.expand(2, 300, 70), None, None, "fp32", "auto", None, mm32.pack(b).memory)


def test_a_changed_source_is_refused_on_the_card(seed: int) -> None:
    weight = torch.randn(70, 300, device="cuda")
    packed_weight = mm32.pack(weight.T)
    mm32.linear(torch.randn(9, 300, device="cuda"), packed_weight)
    weight[0, 0] = 1.0
    with pytest.raises(RuntimeError, match="was modified in place"):
        mm32.linear(torch.randn(9, 300, device="cuda"), packed_weight)


def test_captured_in_a_graph(seed: int) -> None:
    """A replay uses A's values at that time, and B as it was packed; or, if packing is captured too, B's values at that time."""
    a, b, bias = (
        torch.randn(65, 600, device="cuda"),
        torch.randn(600, 70, device="cuda"),
        torch.randn(70, device="cuda"),
    )
    packed_b, late = mm32.pack(b), torch.randn(600, 33, device="cuda")
    mm32.matmul(a, packed_b, bias=bias, activation="relu"), mm32.matmul(a, mm32.pack(late))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = mm32.matmul(a, packed_b, bias=bias, activation="relu")
        packed_late = mm32.pack(late)
        other = mm32.matmul(a, packed_late)
    for _ in range(3):
        a.copy_(torch.randn(65, 600, device="cuda")), late.copy_(torch.randn(600, 33, device="cuda"))
        result.fill_(float("nan")), other.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert same_bits(result, mm32.matmul(a, b, bias=bias, activation="relu", kernel="tensorcore"))
        assert same_bits(other, mm32.matmul(a, late, kernel="tensorcore"))


def test_many_streams_share_one_packed_operand(seed: int) -> None:
    b, inputs = torch.randn(1000, 300, device="cuda"), [torch.randn(129 + i, 1000, device="cuda") for i in range(6)]
    packed_b = mm32.pack(b)
    expected = [mm32.matmul(a, b, kernel="tensorcore") for a in inputs]
    torch.cuda.synchronize()
    streams, results = [torch.cuda.Stream() for _ in inputs], [[] for _ in inputs]
    for _ in range(20):
        for i, (stream, a) in enumerate(zip(streams, inputs, strict=True)):
            with torch.cuda.stream(stream):
                results[i].append(mm32.matmul(a, packed_b))
    torch.cuda.synchronize()
    for wanted, got in zip(expected, results, strict=True):
        assert all(same_bits(one, wanted) for one in got)


def test_a_call_allocates_its_plans_workspace_only(seed: int) -> None:
    a, b = torch.randn(65, 600, device="cuda"), torch.randn(600, 4000, device="cuda")

    def requested(when: str) -> int:
        return torch.cuda.memory_stats()[f"requested_bytes.all.{when}"]

    before = requested("current")
    packed_b = mm32.pack(b)
    assert requested("current") - before == packed_b.nbytes
    out = torch.empty(65, 4000, device="cuda")
    mm32.matmul(a, packed_b, out=out)
    problem = gemm.describe(a, b, None, out)
    space = planning.plan(problem, launch.card_of(a.device.index), "auto", (False, True)).workspace
    before = requested("current")
    torch.cuda.reset_peak_memory_stats()
    mm32.matmul(a, packed_b, out=out)
    assert requested("current") == before
    assert requested("peak") - before <= space.bytes < packed_b.nbytes
