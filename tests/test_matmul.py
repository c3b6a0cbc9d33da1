"""mm32.matmul against float64, on the CPU and, with each kernel, on the card: storage, sizes, batches, epilogues, special values.

The bound of every comparison is `support.gpu.reference`'s; inputs and outputs are in poisoned buffers (`support.gpu.Placed`).
"""

from __future__ import annotations

import itertools
import random

import pytest
import torch

import mm32
from mm32 import torch_product
from mm32.activations import names
from mm32.plan import Unplannable
from support.gpu import (
    CPU,
    CUDA,
    MATRIX_STORES,
    OUT_STORES,
    SIZES,
    UNIT,
    Placed,
    Runner,
    Store,
    assert_close,
    check,
    random_matrix,
    random_out,
    reference,
)

LAYOUTS = {"nn": ("row", "row"), "nt": ("row", "col"), "tn": ("col", "row"), "tt": ("col", "col")}
SPECIAL = [
    float("nan"),
    float("inf"),
    -float("inf"),
    0.0,
    -0.0,
    1e-45,
    -1e-45,
    1e-38,
    3e38,
    -3e38,
    100.0,
    -100.0,
    0.5,
    -0.5,
]


@pytest.fixture(params=[CPU, *CUDA])
def run(request: pytest.FixtureRequest) -> Runner:
    return request.param


def randn(*shape: int, run: Runner) -> torch.Tensor:
    return torch.randn(*shape, device=run.device)


@pytest.mark.parametrize("stored", MATRIX_STORES)
def test_storage_and_sizes(run: Runner, stored: str, rng: random.Random) -> None:
    """A in this storage is multiplied by B in any storage, with sizes around tile edges, 0 to 3 elements off alignment, into any
    output."""
    for other in MATRIX_STORES:
        for _ in run.many(4, 25):
            m, n, k = rng.choice(SIZES), rng.choice(SIZES), rng.choice(SIZES)
            a, a_name = random_matrix(rng, m, k, stored, run.device)
            b, b_name = random_matrix(rng, k, n, other, run.device)
            out, out_name = random_out(rng, (m, n), run.device)
            check(run, a, b, out=out, what=f"M={m} N={n} K={k}, a {a_name}, b {b_name}, out {out_name}")


@pytest.mark.parametrize("stored", MATRIX_STORES)
def test_narrow_products(run: Runner, stored: str, rng: random.Random) -> None:
    """M or N is 1 to 17, with the wide operand in this storage, sizes around narrow.cu's tiles and pieces, and K up to where it
    is split."""
    for width in range(1, 18):
        for _ in run.many(1, 6):
            rows, k = rng.choice((1, 9, 63, 128, 132, 300)), rng.choice((1, 7, 64, 255, 256, 1025, 2060, 9000))
            m, n = rng.choice(((rows, width), (width, rows)))
            narrow_stored = rng.choice(list(MATRIX_STORES))
            a, a_name = random_matrix(rng, m, k, stored if m == rows else narrow_stored, run.device)
            b, b_name = random_matrix(rng, k, n, narrow_stored if m == rows else stored, run.device)
            bias = Placed(randn(n, run=run), Store(step=2), run.device) if rng.randrange(2) else None
            out, out_name = random_out(rng, (m, n), run.device)
            what = f"M={m} N={n} K={k}, a {a_name}, b {b_name}, out {out_name}"
            check(run, a, b, bias, rng.choice([None, "relu"]), out=out, what=what)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_zero_and_one(run: Runner, layout: str, seed: int) -> None:
    for m, n, k in itertools.product((0, 1, 2, 33), (0, 1, 5, 33), (0, 1, 2, 33)):
        a = Placed(randn(m, k, run=run), MATRIX_STORES[LAYOUTS[layout][0]], run.device)
        b = Placed(randn(k, n, run=run), MATRIX_STORES[LAYOUTS[layout][1]], run.device)
        bias = Placed(randn(n, run=run), device=run.device)
        result = check(run, a, b, bias, "relu", what=f"M={m} N={n} K={k}")
        assert result.shape == (m, n)
        check(run, a, b, out=Placed((m, n), OUT_STORES["row_padded_by_1"], run.device), what=f"M={m} N={n} K={k}")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_many_tiles(run: Runner, layout: str, seed: int) -> None:
    """Sizes are large enough for the large tiles and for several blocks along M and N, and not multiples of anything."""
    for m, n, k in ((1537, 1665, 35), (1100, 3456, 20), (130, 70, 1027), (3, 5, 4099)):
        a = Placed(randn(m, k, run=run), MATRIX_STORES[LAYOUTS[layout][0]], run.device)
        b = Placed(randn(k, n, run=run), MATRIX_STORES[LAYOUTS[layout][1]], run.device)
        check(run, a, b, out=Placed((m, n), OUT_STORES["row_padded_by_4"], run.device), what=f"M={m} N={n} K={k}")


BATCHES = {
    "shared_b": ((3, 4, 5, 7), Store(), (7, 6), Store()),
    "shared_b_transposed": ((3, 4, 5, 7), Store(), (7, 6), Store((-1, -2))),
    "shared_b_expanded": ((3, 5, 7), Store(), (3, 7, 6), Store(expand=(0,))),
    "shared_a": ((5, 7), Store(), (3, 4, 7, 6), Store()),
    "shared_a_transposed": ((5, 7), Store((-1, -2)), (3, 7, 6), Store()),
    "both": ((4, 17, 9), Store(), (4, 9, 33), Store()),
    "both_transposed": ((4, 17, 8), Store((0, 2, 1)), (4, 8, 33), Store((0, 2, 1))),
    "rows_outside": ((5, 17, 8), Store((1, 0, 2)), (5, 8, 12), Store((1, 0, 2))),
    "batch_innermost": ((5, 17, 8), Store((1, 2, 0)), (5, 8, 12), Store((1, 2, 0))),
    "broadcast_left": ((1, 3, 5, 8), Store(), (4, 3, 8, 6), Store()),
    "broadcast_right": ((4, 3, 5, 8), Store(), (3, 8, 6), Store()),
    "broadcast_crosswise": ((4, 1, 5, 8), Store(), (1, 3, 8, 6), Store()),
    "permuted": ((2, 3, 4, 5, 8), Store((2, 0, 1, 3, 4)), (2, 3, 4, 8, 6), Store((1, 2, 0, 3, 4))),
    "rank_8": ((2,) * 8 + (2, 3), Store((7, 6, 5, 4, 3, 2, 1, 0, 8, 9)), (3, 4), Store()),
    "expanded_twice": ((2, 3, 5, 8), Store(expand=(0, 2)), (2, 3, 8, 6), Store(expand=(1,))),
    "padded_batch": ((3, 5, 8), Store((0, 1, 2), pad=4), (3, 8, 6), Store((0, 2, 1), pad=1)),
    "one_row_each": ((64, 1, 9), Store(), (9, 6), Store()),
    "one_row_each_permuted": ((4, 6, 1, 9), Store((1, 0, 2, 3)), (9, 6), Store()),
    "empty_batch": ((0, 3, 4), Store(), (4, 5), Store()),
    "batch_of_one": ((1, 1, 3, 4), Store(), (1, 4, 5), Store()),
    "batch_of_empty_products": ((3, 5, 0), Store(), (3, 0, 4), Store()),
    "vector_vector": ((9,), Store(step=2), (9,), Store(offset=1)),
    "vector_matrix": ((9,), Store(step=3), (9, 33), Store((1, 0))),
    "matrix_vector": ((33, 9), Store((1, 0)), (9,), Store(step=2)),
    "vector_batch": ((9,), Store(), (3, 4, 9, 5), Store()),
    "batch_vector": ((3, 4, 5, 9), Store(), (9,), Store()),
    "vector_expanded": ((9,), Store(expand=(0,)), (9, 5), Store()),
    "empty_vectors": ((0,), Store(), (0,), Store()),
}


@pytest.mark.parametrize("case", BATCHES)
def test_batches_and_vectors(run: Runner, case: str, seed: int) -> None:
    a_shape, a_store, b_shape, b_store = BATCHES[case]
    a = Placed(randn(*a_shape, run=run), a_store, run.device)
    b = Placed(randn(*b_shape, run=run), b_store, run.device)
    bias = Placed(randn(b_shape[-1] if len(b_shape) > 1 else 1, run=run), Store(step=2), run.device)
    result = check(run, a, b, what=case)
    shape = torch.matmul(torch.empty(a_shape), torch.empty(b_shape)).shape
    assert result.shape == shape
    check(run, a, b, bias, "silu", what=f"{case} with an epilogue")
    reversed_ = Store(tuple(reversed(range(len(shape)))), step=2, pad=1, offset=1)
    check(run, a, b, bias, out=Placed(tuple(shape), reversed_, run.device), what=f"{case} into permuted storage")


@pytest.mark.parametrize("activation", [None, *names()])
@pytest.mark.parametrize("bias", ["none", "contiguous", "strided", "expanded"])
def test_epilogue(run: Runner, activation: str | None, bias: str, rng: random.Random) -> None:
    stores = {"contiguous": Store(), "strided": Store(step=3, offset=1), "expanded": Store(expand=(0,))}
    for m, n, k in ((1, 1, 1), (5, 7, 3), (33, 66, 17), (64, 64, 64), (70, 130, 9)):
        a, b = Placed(randn(m, k, run=run), device=run.device), Placed(randn(k, n, run=run), device=run.device)
        placed = None if bias == "none" else Placed(3 * randn(n, run=run), stores[bias], run.device)
        check(run, a, b, placed, activation, what=f"M={m} N={n} K={k}")


@pytest.mark.parametrize("activation", [None, *names()])
def test_activation_values(run: Runner, activation: str | None) -> None:
    """With K = 1 and B = 1 the result is the activation itself, over its whole range; NaN and infinities are torch's."""
    points = torch.cat([torch.tensor(SPECIAL), torch.linspace(-110, 110, 4001), torch.linspace(-6, 6, 4001)])
    z = points.to(run.device)
    got = run(z[:, None], torch.ones(1, 1, device=run.device), activation=activation)[:, 0]
    torch_says = torch_product.activate(z, activation)
    finite = torch_says.isfinite()
    assert torch.equal(got[~finite].isnan(), torch_says[~finite].isnan())
    assert torch.equal(got[~finite].nan_to_num(), torch_says[~finite].nan_to_num())
    expected, tolerance = reference(
        z[finite][:, None], torch.ones(1, 1, device=run.device), activation=activation, kernel=run.kernel
    )
    assert_close(got[finite][:, None], expected, tolerance + 2.0**-146, activation)


def test_relu_keeps_nan(run: Runner) -> None:
    a = torch.tensor([[1.0], [float("nan")], [-1.0]], device=run.device)
    got = run(a, torch.ones(1, 1, device=run.device), activation="relu")
    assert got[1].isnan().all()
    assert got[0] == 1
    assert got[2] == 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", [(70, 45, 37), (70, 13, 37), (12, 70, 37)], ids=str)
def test_nonfinite_values_spread_as_torchs(run: Runner, layout: str, sizes: tuple[int, int, int], seed: int) -> None:
    """An infinity or NaN in an operand reaches its row or column of the result and nothing else."""
    m, n, k = sizes
    bad = [float("nan"), float("inf"), -float("inf")]
    for x, y in itertools.product(bad, [0.0, 1.0, *bad]):
        a, b = randn(m, k, run=run), randn(k, n, run=run)
        a[3, 5], b[5, 7], b[9, 11], a[m - 1, k - 1] = x, y, x, x
        b[5, 8] = 0.0  # inf * 0 is NaN
        expected = (a.double() @ b.double()).float()
        a, b = (
            Placed(a, MATRIX_STORES[LAYOUTS[layout][0]], run.device),
            Placed(b, MATRIX_STORES[LAYOUTS[layout][1]], run.device),
        )
        got = run(a.view, b.view)
        assert torch.equal(got.isnan(), expected.isnan()), (x, y)
        infinite = expected.isinf()
        assert torch.equal(got.isinf(), infinite), (x, y)
        assert torch.equal(got[infinite], expected[infinite]), (x, y)
        value, tolerance = reference(a.view, b.view, kernel=run.kernel)
        finite = expected.isfinite()
        assert_close(got[finite], value[finite], tolerance[finite], (x, y))


def test_overflow_is_infinite(run: Runner) -> None:
    a = torch.tensor([[3e38, 3e38], [-3e38, -3e38], [1e30, 0.0]], device=run.device)
    got = run(a, torch.tensor([[1.0, 1e10], [1.0, 0.0]], device=run.device))
    assert got.tolist() == [[float("inf")] * 2, [-float("inf")] * 2, [pytest.approx(1e30), float("inf")]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_integers_are_exact(run: Runner, layout: str, seed: int) -> None:
    """Sums of integers below 2^24 are not rounded in any order, so results must be equal, not only close."""
    for m, n, k, top in ((65, 63, 1000, 100), (129, 33, 4, 2047), (1, 300, 33, 700), (257, 130, 17, 900)):
        a = torch.randint(-top, top + 1, (m, k), device=run.device).float()
        b = torch.randint(-top, top + 1, (k, n), device=run.device).float()
        bias = torch.randint(-top, top + 1, (n,), device=run.device).float()
        expected = a.double() @ b.double() + bias.double()
        assert expected.abs().max() < 2**24
        a = Placed(a, MATRIX_STORES[LAYOUTS[layout][0]], run.device).view
        b = Placed(b, MATRIX_STORES[LAYOUTS[layout][1]], run.device).view
        assert torch.equal(run(a, b, bias=bias).double(), expected), (m, n, k)


def test_subnormals_are_kept_by_ieee(run: Runner) -> None:
    a = torch.tensor([[2.0**-70, 2.0**-75], [2.0**-149, 0.0]], device=run.device)
    b = torch.tensor([[2.0**-70, 1.0], [2.0**-70, 0.0]], device=run.device)
    try:
        got = run(a, b, precision="ieee")
    except Unplannable:
        pytest.skip("not a kernel of precision ieee")
    assert got.tolist() == [[2.0**-140 + 2.0**-145, 2.0**-70], [0.0, 2.0**-149]]


@pytest.mark.parametrize("sizes", [(64, 48, 0), (1, 7, 0), (130, 1, 0)])
@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_depth_zero_is_the_epilogue_of_zeros(run: Runner, sizes: tuple[int, int, int], activation: str | None) -> None:
    m, n, k = sizes
    a, b, bias = randn(m, k, run=run), randn(k, n, run=run), torch.arange(n, device=run.device) - 3.0
    assert torch.equal(run(a, b), torch.zeros(m, n, device=run.device))
    got, expected = run(a, b, bias=bias, activation=activation), torch_product.activate(bias.expand(m, n), activation)
    torch.testing.assert_close(got, expected, rtol=4 * UNIT, atol=0)


@pytest.mark.parametrize("values", ["normal", "uniform"])
@pytest.mark.parametrize("layout", ["nn", "tt"])
@pytest.mark.parametrize("sizes", [(96, 80), (96, 8), (1, 80)], ids=str)
def test_rounding_errors_do_not_add_up(
    run: Runner, values: str, layout: str, sizes: tuple[int, int], seed: int
) -> None:
    """Over a long K rounding errors must have random signs: their norm grows as sqrt(K) u, while that of an accumulator that
    rounds toward zero grows as K u. 0.6 sqrt(K) u is twice cuBLAS's figure and an eighteenth of a truncating accumulator's."""
    m, n, k = *sizes, 8192
    make = torch.randn if values == "normal" else torch.rand
    a, b = make(m, k, device=run.device), make(k, n, device=run.device)
    a = Placed(a, MATRIX_STORES[LAYOUTS[layout][0]], run.device).view
    b = Placed(b, MATRIX_STORES[LAYOUTS[layout][1]], run.device).view
    expected = a.double() @ b.double()
    error = (run(a, b).double() - expected).norm() / expected.norm()
    assert error <= 0.6 * k**0.5 * UNIT


def test_the_same_bits_every_time(run: Runner, seed: int) -> None:
    for m, n, k in ((257, 129, 1000), (3, 2, 9999), (700, 900, 65), (16, 300, 20000)):
        a, b, bias = randn(k, m, run=run).T, randn(n, k, run=run).T, randn(n, run=run)
        first = run(a, b, bias=bias, activation="gelu")
        for _ in range(4):
            assert torch.equal(run(a, b, bias=bias, activation="gelu").view(torch.int32), first.view(torch.int32))


def test_linear_is_the_nt_layout(run: Runner, seed: int) -> None:
    x, weight, bias = randn(3, 17, 20, run=run), randn(33, 20, run=run), randn(33, run=run)
    got = mm32.linear(x, weight, bias, activation="relu", kernel=run.kernel)
    assert_close(got, *reference(x, weight.T, bias, "relu", run.kernel))
    assert_close(mm32.linear(x, weight[0], kernel=run.kernel), *reference(x, weight[0], kernel=run.kernel))
    out = torch.empty(3, 17, 33, device=run.device)
    assert mm32.linear(x, weight, out=out, kernel=run.kernel) is out
    assert_close(out, *reference(x, weight.T, kernel=run.kernel))


def test_a_view_that_negates(run: Runner, seed: int) -> None:
    """The imaginary part of a conjugate is a view whose values are the negatives of those in memory."""
    z = torch.complex(randn(9, 7, run=run), randn(9, 7, run=run))
    a, b = z.conj().imag, randn(7, 5, run=run)
    assert a.is_neg()
    assert_close(run(a, b), *reference(-z.imag, b, kernel=run.kernel))


def test_every_option_reaches_the_result(run: Runner, seed: int) -> None:
    """A dropped option would show here: the result with each option differs from the plain one and from the others."""
    a, b, bias = randn(8, 9, run=run), randn(9, 10, run=run), randn(10, run=run)
    plain = run(a, b)
    seen = [run(a, b, bias=bias), *(run(a, b, activation=name) for name in names())]
    for one, two in itertools.combinations([plain, *seen], 2):
        assert (one - two).abs().max() > 1e-5


# ---------------------------------------------------------------------------------------------------------------------
# The checks above see every kind of fault


def beside(t: torch.Tensor, distance: int) -> torch.Tensor:
    """Return the element of memory at this distance from a tensor's first one."""
    return t.as_strided((), (), t.storage_offset() + distance)


FAULTS = {
    "an_error_of_1e-5": lambda a, b, out: out[3, 4].mul_(1.00001),
    "nan": lambda a, b, out: out[0, 0].fill_(float("nan")),
    "not_written": lambda a, b, out: beside(out, 0).view(torch.int32).fill_(0x7FC0DEAD),
    "written_before": lambda a, b, out: beside(out, -1).fill_(0.0),
    "written_after": lambda a, b, out: beside(out, 8 * 13).fill_(0.0),
    "written_between_rows": lambda a, b, out: beside(out, 9).fill_(0.0),
    "another_nan_between_rows": lambda a, b, out: beside(out, 9).fill_(float("nan")),
    "a_written": lambda a, b, out: a[0, 0].add_(1),
    "sign_of_a_zero_in_b": lambda a, b, out: b[0, 0].neg_(),
    "read_beside_a": lambda a, b, out: out[8, 8].add_(beside(a, -1)),
    "read_after_b": lambda a, b, out: out[8, 8].add_(beside(b, b.numel())),
}


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_the_checks_see(fault: str | None, seed: int) -> None:
    values = torch.randn(5, 9)
    values[0, 0] = 0.0
    a, b, out = Placed(torch.randn(9, 5)), Placed(values), Placed((9, 9), Store(pad=4))

    def run(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor, **options: object) -> torch.Tensor:
        mm32.matmul(a, b, out=out)
        if fault is not None:
            FAULTS[fault](a, b, out)
        return out

    if fault is None:
        check(run, a, b, out=out)
    else:
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            check(run, a, b, out=out)
