"""The kernel `direct`: on the host by the simulator (simulated.py), and on a GPU."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

import mm32
from mm32 import gemm, numerics
from mm32.cuda import launch
from mm32.plan import H200, Unplannable, direct, plan
from mm32.plan.cost import Work
from support import simulated

simulate = pytest.mark.skipif(simulated.COMPILER is None, reason="no C++ compiler")
Array = np.ndarray


class Product(NamedTuple):
    m: int
    k: int
    n: int
    layout: str = "nt"
    offset: int = 0  # distance of A and B from a multiple of 16 bytes, in floats
    batch: int = 1


def operands(product: Product, rng: np.random.Generator) -> tuple[Array, Array]:
    shapes = (product.batch, product.m, product.k), (product.batch, product.k, product.n)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    return a, b


def stored(x: Array, transposed: bool, offset: int) -> tuple[torch.Tensor, Array]:
    """Return x as a tensor in memory of its own, stored with its last two axes swapped if `transposed`; and that memory."""
    memory = simulated.aligned(x.size, offset)
    lies = x.swapaxes(1, 2) if transposed else x
    memory[:] = lies.ravel()
    view = torch.from_numpy(memory).view(*lies.shape)
    return view.mT if transposed else view, memory


def on_host(
    product: Product, a: Array, b: Array, tile: direct.Tile, cluster: int, folder: Path, blocks: int | None = None,
    bias: Array | None = None, activation: str | None = None,
) -> Array:  # fmt: skip
    """Return C (batch, M, N), computed with one tile and cluster. `blocks`: the number of clusters in the grid, as on a card that
    has no room for more."""
    of_a, of_b = (
        stored(a, product.layout[0] == "t", product.offset),
        stored(b, product.layout[1] == "t", product.offset),
    )
    memory = simulated.aligned(product.batch * product.m * product.n)
    memory[:] = np.nan
    c = torch.from_numpy(memory).view(product.batch, product.m, product.n)
    asked = gemm.describe(of_a[0], of_b[0], None if bias is None else torch.from_numpy(bias), c, activation)
    card = H200 if blocks is None else replace(H200, sms=blocks * cluster)
    made = direct.assemble(direct.Candidate(0.0, tile, cluster), asked, card)
    simulated.run(made, asked, of_a[1], of_b[1], memory, bias, folder)
    return memory.reshape(c.shape)


LARGE, WIDE, SMALL = direct.TILES
NARROW, NARROWEST = direct.NARROW
SWAPPED = [replace(tile, swapped=True) for tile in direct.NARROW]
# Together these have every tile, load, cluster and layout; edges of M, N and K; more tiles than blocks; batches.
CASES = {
    "unaligned": (Product(130, 75, 257, "nt", 1), LARGE, 1, 1),
    "along rows": (Product(140, 70, 132, "tn"), WIDE, 1, 1),
    "K shared by eight": (Product(100, 700, 72), SMALL, 8, 1),
    "one product": (Product(1, 1, 1, "nn"), SMALL, 1, None),
    "groups take turns at tiles": (Product(64, 72, 64, "nn", 0, 5), SMALL, 1, 1),
    "lines at any alignment": (Product(67, 131, 130, "tt", 2), WIDE, 1, 1),
    "few rows": (Product(24, 300, 140, "nn"), SWAPPED[1], 2, 1),
    "K of up to 32": (Product(130, 32, 140, "nn", 0, 2), direct.SHORT, 1, 2),
    "K of up to 32, unaligned": (Product(130, 29, 270, "tt", 1, 3), direct.SHORT, 1, 3),
}
MORE = {
    "K of up to 32, the other lines": (Product(70, 31, 133, "nn", 3, 2), direct.SHORT, 1, 2),
    "K of up to 32, along rows": (Product(200, 20, 132, "tn", 0, 2), direct.SHORT, 1, 1),
    "K of up to 32, along K": (Product(200, 16, 132, "nt"), direct.SHORT, 1, 1),
    "K of up to 32, large tiles": (Product(130, 17, 200, "nt", 1), LARGE, 1, 1),
    "K of up to 32, along rows, unaligned": (Product(131, 30, 137, "tn", 2), WIDE, 1, 1),
    "K of up to 32, small tiles": (Product(72, 8, 64, "tt", 0, 5), SMALL, 1, 2),
    "K of up to 32, few rows": (Product(17, 23, 170, "nn", 1, 3), SWAPPED[1], 1, 1),
    "one tile": (Product(128, 200, 128), LARGE, 1, None),
    "along rows, unaligned": (Product(65, 129, 66, "tn", 1, 2), SMALL, 1, 2),
    "K shared by two": (Product(72, 300, 132, "tn"), SMALL, 2, 1),
    "less of K than blocks": (Product(64, 40, 128), SMALL, 8, 1),
    "the other lines": (Product(66, 133, 70, "nn", 1, 3), SMALL, 1, 1),
    "both layouts": (Product(132, 128, 100, "tt"), LARGE, 1, 1),
    "the others": (Product(130, 256, 192, "nn"), LARGE, 2, 1),
    "four": (Product(128, 700, 128), LARGE, 4, 1),
    "wide, four": (Product(200, 333, 130, "nn", 3), WIDE, 4, 1),
    "small in batches": (Product(16, 16, 16, "nt", 0, 5), SMALL, 1, 2),
    "flat": (Product(64, 520, 256, "nn"), SMALL, 1, 1),
    "both along rows, unaligned": (Product(133, 150, 137, "tn", 3), LARGE, 1, 1),
    "groups at tiles with edges": (Product(90, 100, 150, "nt", 0, 3), SMALL, 1, 2),
    "B is kept": (Product(300, 64, 140, "nn", 0, 2), direct.SHORT, 1, 2),
    "B is kept, unaligned": (Product(130, 33, 270, "tt", 1, 3), direct.SHORT, 1, 3),
    "B is kept, two K-blocks": (Product(70, 128, 300, "tn"), direct.SHORT, 1, 2),
    "B is kept, panels of one tile": (Product(40, 64, 520, "nt", 3, 2), direct.SHORT, 1, 2),
    "B is kept, more blocks than panels": (Product(400, 100, 64), direct.SHORT, 1, 3),
    "few columns": (Product(150, 400, 31, "nn"), NARROW, 2, 1),
    "few columns, unaligned": (Product(70, 133, 13, "tn", 3, 2), NARROWEST, 1, 1),
    "few columns, groups at tiles": (Product(130, 200, 32, "tt", 0, 3), NARROWEST, 1, 2),
    "few rows, both along rows": (Product(32, 200, 132, "tn", 0, 2), SWAPPED[0], 1, 1),
    "few rows, four": (Product(5, 300, 140), SWAPPED[1], 4, 1),
    "few rows, groups at tiles": (Product(17, 133, 170, "tt", 1, 3), SWAPPED[1], 1, 1),
}


@pytest.mark.gpu
def test_kept_tiles_walk_down_a_column_of_more_than_a_million_rows(seed: int) -> None:
    """A block that keeps its tile walks down the column, and must count the rows that are left below its tile."""
    m, k, n = 2**20 + 3000, 28, 768
    asked, card = gemm.from_layout("nt", m, n, k), launch.card_of(0)
    (kept,) = (candidate for candidate in direct.candidates(Work(asked), card) if candidate.tile.kept)
    a, b = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda").T
    out = torch.full((m, n), float("nan"), device="cuda")
    launch.Executable(direct.assemble(kept, asked, card), 0)(a, b, None, out)
    for first in (0, 2**20 - 300, m - 600):
        rows = slice(first, first + 600)
        truth, size = a[rows].double() @ b.double(), a[rows].double().abs() @ b.double().abs()
        assert float(((out[rows] - truth).abs() / size).max()) <= 4 * numerics.UNIT


def check(c: Array, a: Array, b: Array) -> None:
    """Assert the bound of bf16x6 with sums promoted every 32 of K, and with rounding of the partial sums of a cluster."""
    for i in range(len(c)):
        assert numerics.componentwise(c[i], a[i], b[i]) <= 4
        assert numerics.normwise(c[i], a[i], b[i]) <= 2e-7


@simulate
@pytest.mark.parametrize("name", [*CASES, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)])
def test_sums_are_right(name: str, libraries: Path, rng: np.random.Generator, seed: int) -> None:
    product, tile, cluster, blocks = (CASES | MORE)[name]
    a, b = operands(product, np.random.default_rng(seed))
    check(on_host(product, a, b, tile, cluster, libraries, blocks), a, b)


@simulate
@pytest.mark.parametrize(("cluster", "sizes"), [pytest.param(1, (72, 68), marks=pytest.mark.slow), (2, (64, 64))])
def test_what_bf16x6_cannot_carry_is_computed_again(
    cluster: int, sizes: tuple[int, int], libraries: Path, seed: int
) -> None:
    product, rng = Product(sizes[0], 256, sizes[1]), np.random.default_rng(seed)
    a, b = operands(product, rng)
    a[0, 3] *= 1e-36
    b[0, :, 9] *= 1e-3
    a[0, 5, 7] = np.nan
    a[0, 6, :128] = np.inf
    b[0, 100, 11] = -np.inf
    a[0, 8] = 0
    a[0, 8, 0] = 3.4e38  # rounds to Inf in bf16
    a[0, 12] = 0
    with np.errstate(invalid="ignore", over="ignore"):
        truth = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
        c = on_host(product, a, b, SMALL, cluster, libraries, 1)
        assert np.array_equal(np.isnan(c), np.isnan(truth))
        assert np.array_equal(c == np.inf, truth == np.inf)
        assert np.array_equal(c == -np.inf, truth == -np.inf)
        finite = np.isfinite(truth[0]).all(axis=1)
        size = np.abs(a[0][finite]).astype(np.float64) @ np.abs(b[0]).astype(np.float64)
        error = np.abs(c[0][finite] - a[0][finite].astype(np.float64) @ b[0].astype(np.float64))
    columns = np.isfinite(b[0]).all(axis=0)
    assert (error <= numerics.UNIT * 16 * size + 2.0**-140)[:, columns].all()
    assert not c[0][12][columns].any()


@simulate
@pytest.mark.parametrize("swapped", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_least_numbers_of_fp32_count(swapped: bool, libraries: Path, seed: int) -> None:
    """Elements that bf16 rounds to 0 must count, beside products that fp32 cannot represent exactly, and rows of zeros."""
    product, rng = Product(64, 128, 64), np.random.default_rng(seed)
    a, b = operands(product, rng)
    a[0, 1] *= np.float32(1e-41)
    a[0, 2] = 1e-42
    a[0, 3] = 0
    a[0, 4] *= 1e-20
    b[0, :, 4] *= 1e-21
    b[0, :, 7] *= 1e30
    b[0, :, 9] = 0
    if swapped:
        a, b = b.swapaxes(1, 2).copy(), a.swapaxes(1, 2).copy()
    c = on_host(product, a, b, SMALL, 1, libraries, 1)
    truth, size = a.astype(np.float64) @ b.astype(np.float64), np.abs(a).astype(np.float64) @ np.abs(b)
    assert (np.abs(c - truth) <= 16 * numerics.UNIT * size + 128 * 2.0**-149).all()
    assert np.count_nonzero(c) == np.count_nonzero(truth.astype(np.float32))


def spoil(kind: str, a: Array, b: Array, rng: np.random.Generator) -> None:
    """Change the operands of one product to data that bf16x6 cannot represent as they are."""
    with np.errstate(under="ignore"):
        match kind:
            case "subnormal A":
                a *= np.float32(1e-41)
            case "subnormal B beside large A":
                a *= np.float32(1e34)
                b *= np.float32(1e-40)
            case "small products":
                a *= np.float32(1e-22)
                b *= np.float32(1e-21)
            case "a row and a column":
                a[1] *= np.float32(1e-38)
                b[:, 2] *= np.float32(1e-35)
                b[:, 3] = 0
            case "ends of the range":
                a *= np.exp(rng.uniform(-90, 40, a.shape)).astype(np.float32)
                b *= np.exp(rng.uniform(-90, 40, b.shape)).astype(np.float32)
            case "NaN and Inf":
                a[2, a.shape[1] // 2] = np.nan
                b[1, 3] = -np.inf
                b[3, 5] = np.inf
                b[4, 5] = np.inf
            case "Inf in a row and in a column, and a zero":
                a[0, 7] = np.inf
                a[1, 1] = -np.inf
                b[7, 2] = 0
                b[9, 4] = np.inf
            case "all NaN":
                a[:] = np.nan
            case "rows of NaN":
                a[: a.shape[0] // 2, ::3] = np.nan
                a[-1, -1] = np.nan
            case "columns of NaN":
                b[::4, : b.shape[1] // 2] = np.nan
                b[-1, -1] = np.nan
            case "all Inf":
                a[:] = np.inf
                b[:] = np.abs(b)
            case "Inf beside subnormal numbers":
                a *= np.float32(1e-41)
                a[0, 3] = np.inf
                b[5, 1] = np.nan


SPOILED = ["subnormal A", "subnormal B beside large A", "small products", "a row and a column", "ends of the range",
           "NaN and Inf", "Inf in a row and in a column, and a zero", "all NaN", "rows of NaN", "columns of NaN", "all Inf",
           "Inf beside subnormal numbers"]  # fmt: skip
FORMS = {
    "K shared by groups": (Product(70, 200, 68), SMALL, 1, 1),
    "K shared by a cluster": (Product(65, 130, 40, "nn"), SMALL, 2, 1),
    "a row for a warp": (Product(64, 512, 36, "tt", 1), SMALL, 8, 1),
    "a warp's rows its own": (Product(130, 70, 132, "tn"), LARGE, 1, 1),
    "at tiles": (Product(64, 72, 64, "nn", 0, 3), SMALL, 1, 1),
    "B is kept": (Product(150, 64, 140, "nn", 0, 2), direct.SHORT, 1, 2),
    "few rows": (Product(24, 300, 140, "nn"), SWAPPED[1], 2, 1),
}


@simulate
@pytest.mark.parametrize("kind", SPOILED)
@pytest.mark.parametrize(
    "form", [*list(FORMS)[:2], *(pytest.param(name, marks=pytest.mark.slow) for name in list(FORMS)[2:])]
)
def test_data_that_bf16x6_cannot_carry(form: str, kind: str, libraries: Path, seed: int) -> None:
    product, tile, cluster, blocks = FORMS[form]
    rng = np.random.default_rng(seed)
    a, b = operands(product, rng)
    spoil(kind, a[0], b[0], rng)  # a batch's other matrices stay as they are, and are computed by the same blocks
    c = on_host(product, a, b, tile, cluster, libraries, blocks)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        truth, size = a.astype(np.float64) @ b.astype(np.float64), np.abs(a).astype(np.float64) @ np.abs(b)
        rounded = truth.astype(np.float32)
    assert np.array_equal(np.isnan(c), np.isnan(rounded))
    assert np.array_equal(c == np.inf, rounded == np.inf)
    assert np.array_equal(c == -np.inf, rounded == -np.inf)
    there = np.isfinite(rounded)
    bound = 16 * numerics.UNIT * size[there] + product.k * 2.0**-149
    assert (np.abs(c[there] - truth[there]) <= bound).all()


@simulate
@pytest.mark.parametrize("layout", ["tt", "nt"])
@pytest.mark.parametrize("cluster", [pytest.param(4, marks=pytest.mark.slow), 8])
def test_the_block_that_has_a_row_computes_it_again(layout: str, cluster: int, libraries: Path, seed: int) -> None:
    """Blocks of a cluster store rows that need not be neighbours. In each of the rows changed here, bf16x6 loses bits of sums."""
    product = Product(58, 512, 36, layout)
    a, b = operands(product, np.random.default_rng(seed))
    a[0, [1, 22, 57]] *= np.float32(1e-38)
    c = on_host(product, a, b, SMALL, cluster, libraries, 1)
    truth, size = a.astype(np.float64) @ b.astype(np.float64), np.abs(a).astype(np.float64) @ np.abs(b)
    assert (np.abs(c - truth) <= 16 * numerics.UNIT * size + product.k * 2.0**-149).all()


@simulate
@pytest.mark.slow
@pytest.mark.parametrize("layout", ["nn", "tt"])
@pytest.mark.parametrize("offset", [1, 2, 3])
@pytest.mark.parametrize("k", [65, 66, 67, 130])
def test_lines_lie_anywhere(layout: str, offset: int, k: int, libraries: Path, seed: int) -> None:
    product = Product(69, k, 71, layout, offset, 2)
    a, b = operands(product, np.random.default_rng(seed))
    loads = direct.loads_of(gemm.from_layout(layout, product.m, product.n, k))
    assert set(loads) <= {4, 5}
    check(on_host(product, a, b, SMALL, 1, libraries, 1), a, b)


@simulate
def test_bias_and_activation(libraries: Path, seed: int) -> None:
    product, rng = Product(70, 100, 67), np.random.default_rng(seed)
    a, b = operands(product, rng)
    bias = rng.standard_normal(67).astype(np.float32)
    for tile in (SMALL, SWAPPED[1]):
        c = on_host(product, a, b, tile, 2, libraries, 1, bias, "relu")
        assert np.abs(c - np.maximum(a.astype(np.float64) @ b + bias, 0)).max() < 1e-5


# ---------------------------------------------------------------------------------------------------------------------
# Plans


def test_a_plan_is_one_launch_without_a_workspace() -> None:
    made = plan(gemm.from_layout("nt", 512, 512, 512), H200, "direct")
    (launch,) = made.launches
    assert made.workspace is None
    assert made.scheme == "bf16x6"
    assert launch.blocks is not None
    assert launch.blocks <= H200.sms
    assert launch.shared <= H200.shared_memory - 2048  # leaves room for shared memory that is not dynamic


def test_lines_of_any_alignment_are_copied_in_16_bytes() -> None:
    assert direct.loads_of(gemm.from_layout("nn", 64, 64, 64)) == (2, 0)
    assert direct.loads_of(gemm.from_layout("nn", 63, 65, 67)) == (5, 4)
    assert direct.loads_of(gemm.from_layout("tt", 63, 65, 67)) == (4, 5)
    a, b = torch.empty(64, 130)[:, ::2], torch.empty(65, 64)
    asked = gemm.describe(a, b[:64, :], None, torch.empty(64, 64))
    assert direct.loads_of(asked) == (1, 0)
    for tile in direct.ALL:
        for loads in itertools.product(direct.RAW, direct.RAW):
            chosen = tile.loads(loads, H200)
            # Shared memory that is not dynamic takes 736 bytes with two stages, 864 with four.
            assert tile.shared(chosen) + 736 <= H200.shared_memory
            assert tile.stages == 2 or tile.shared(chosen) + 864 <= H200.shared_memory
            assert chosen == loads or (loads[0] == 4 and loads[1] != 2 and tile.n == 128)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (64, 4096, 4096), (1024, 1024, 1024), (65536, 256, 256), (100, 30, 9)])
def test_clusters_share_k_where_tiles_are_few(sizes: tuple[int, int, int]) -> None:
    asked = gemm.from_layout("nn", *sizes)
    for candidate in direct.candidates(Work(asked), H200):
        (launch,) = direct.assemble(candidate, asked, H200).launches
        rows, columns = candidate.tile.across(asked)
        tiles = -(-rows // candidate.tile.m) * -(-columns // candidate.tile.n)
        assert launch.blocks is not None
        assert launch.blocks % candidate.cluster == 0
        turns = direct.SEVERAL_TURNS if candidate.cluster == 2 else 1
        assert candidate.cluster == 1 or tiles * candidate.cluster <= turns * H200.sms
        assert candidate.cluster == 1 or candidate.cluster * 64 <= asked.k


@pytest.mark.parametrize(
    ("m", "n", "swapped"), [(32, 4096, True), (4096, 16, False), (8, 8, False), (65, 4096, None), (1, 4096, None)]
)
def test_few_rows_or_columns_get_tiles_of_32(m: int, n: int, swapped: bool | None) -> None:
    tiles = direct.tiles_for(gemm.from_layout("nn", m, n, 512))
    narrow = {tile.swapped for tile in tiles if tile.n == 32}
    assert narrow == (set() if swapped is None else {swapped})


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_it_is_bf16x6_only(precision: str) -> None:
    with pytest.raises(Unplannable, match="it computes bf16x6"):
        plan(gemm.from_layout("nn", 64, 64, 64, precision=precision), H200, "direct")


# ---------------------------------------------------------------------------------------------------------------------
# On a GPU

SIZES = [(512, 512, 512), (777, 1333, 555), (64, 4096, 4096), (1000, 64, 3000), (33, 17, 65), (2048, 2048, 2048),
         (32, 4096, 4096), (3000, 200, 17), (7, 1030, 20000), (4096, 64, 4096), (2000, 99, 3001)]  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("sizes", SIZES)
def test_on_a_gpu(sizes: tuple[int, int, int], layout: str, seed: int) -> None:
    m, k, n = sizes
    a = torch.randn(m, k, device="cuda") if layout[0] == "n" else torch.randn(k, m, device="cuda").T
    b = torch.randn(k, n, device="cuda") if layout[1] == "n" else torch.randn(n, k, device="cuda").T
    bias = torch.randn(n, device="cuda")
    truth, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    asked = gemm.from_layout(layout, m, n, k)
    c = mm32.matmul(a, b, kernel="direct")
    assert float(((c - truth).abs() / size).max()) <= 4 * numerics.UNIT
    assert torch.equal(c, mm32.matmul(a, b, kernel="direct"))
    with_bias = mm32.matmul(a, b, bias=bias, activation="relu", kernel="direct")
    assert torch.allclose(with_bias.double(), (truth + bias).relu(), rtol=0, atol=float(size.max()) * 4 * numerics.UNIT)
    card = launch.card_of(0)
    for candidate in direct.candidates(Work(asked), card):
        out = torch.full((m, n), float("nan"), device="cuda")
        launch.Executable(direct.assemble(candidate, asked, card), 0)(a, b, None, out)
        assert float(((out - truth).abs() / size).max()) <= 4 * numerics.UNIT, candidate


@pytest.mark.gpu
def test_data_of_any_kind_on_a_gpu(seed: int) -> None:
    a, b = torch.randn(300, 500, device="cuda"), torch.randn(500, 260, device="cuda")
    a[3], a[7, 9], a[9, 4] = 1e-36 * a[3], float("nan"), float("inf")
    b[:, 5] = 1e30
    c, truth = mm32.matmul(a, b, kernel="direct"), (a.double() @ b.double()).float()
    assert torch.equal(c.isnan(), truth.isnan())
    assert torch.equal(c.isinf(), truth.isinf())
    rows = truth.isfinite().all(1)
    size = a[rows].double().abs() @ b.double().abs()
    assert float(((c[rows] - truth[rows]).abs() / size).max()) <= 16 * numerics.UNIT


@pytest.mark.gpu
def test_sums_at_the_ends_of_fp32_on_a_gpu(seed: int) -> None:
    """Overflow inside a tensor core is found, and so are elements below the least number of bf16."""
    one = torch.ones(64, 64, device="cuda")
    for k, signed in ((16, False), (32, True), (64, False)):
        a, b = 2.0**63 * one[:, :k], 2.0**62 * one[:k]
        if signed:
            a = a.clone()
            a[:, k // 2 :] *= -1  # an intermediate sum overflows, the whole does not
        c, ieee = mm32.matmul(a, b, kernel="direct"), mm32.matmul(a, b, precision="ieee")
        if signed:  # the sum is 0 where its order keeps it finite, which is at least where it does so for IEEE's sum
            assert bool((c.isfinite() | ~ieee.isfinite()).all()), k
            assert torch.equal(c[c.isfinite()], torch.zeros_like(c)[c.isfinite()])
        else:
            assert torch.equal(c, ieee), k
    a, b = 1e-41 * torch.randn(64, 128, device="cuda"), torch.randn(128, 64, device="cuda")
    a[1], a[2], b[:, 3] = 1e-42, 0, 1e30
    for x, y in ((a, b), (b.T, a.T)):
        c, truth = mm32.matmul(x, y, kernel="direct").double(), x.double() @ y.double()
        size = x.double().abs() @ y.double().abs()
        assert bool(((c - truth).abs() <= 16 * numerics.UNIT * size + 128 * 2.0**-149).all())


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_the_block_that_has_a_row_computes_it_again_on_a_gpu(layout: str, seed: int) -> None:
    """This holds for every tile and cluster that the planner knows for the product."""
    m, k, n = 58, 4096, 60
    asked, card = gemm.from_layout(layout, m, n, k), launch.card_of(0)
    a, b = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
    a[[1, 22, 57]] *= 1e-38
    a[40, [3, 1000]] = float("inf")
    b = b.abs()
    x = a.T.contiguous().T if layout[0] == "t" else a
    y = b.T.contiguous().T if layout[1] == "t" else b
    truth, size = a.double() @ b.double(), a.double().abs() @ b.double()
    finite = torch.arange(m, device="cuda") != 40
    clusters = set()
    for candidate in direct.candidates(Work(asked), card):
        out = torch.full((m, n), float("nan"), device="cuda")
        launch.Executable(direct.assemble(candidate, asked, card), 0)(x, y, None, out)
        error = (out.double() - truth).abs()[finite]
        assert bool((error <= 16 * numerics.UNIT * size[finite] + k * 2.0**-149).all()), candidate
        assert bool((out[40] == float("inf")).all()), candidate
        clusters.add(candidate.cluster)
    assert 8 in clusters


@pytest.mark.gpu
def test_batches_and_views_on_a_gpu(seed: int) -> None:
    a, b = torch.randn(7, 3, 200, 96, device="cuda"), torch.randn(3, 130, 96, device="cuda").mT
    truth = a.double() @ b.double()
    assert float((mm32.matmul(a, b, kernel="direct") - truth).abs().max()) < 1e-4
    out = torch.zeros(200, 130, device="cuda").T
    x, y = torch.randn(131, 96, device="cuda")[1:], torch.randn(96, 401, device="cuda")[:, 1::2]
    mm32.matmul(x, y, out=out, kernel="direct")
    assert float((out - x.double() @ y.double()).abs().max()) < 1e-4
