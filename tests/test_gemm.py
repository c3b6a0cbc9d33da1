"""The description of a product: shapes and their errors, strides read from tensors, batches merged and folded."""

from __future__ import annotations

import itertools
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mm32
from mm32 import gemm, storage
from mm32.activations import names
from mm32.cuda import compile as compiler
from mm32.gemm import LAYOUTS, MAX_BATCH_RANK, PRECISIONS, Gemm, Matrix

# ---------------------------------------------------------------------------------------------------------------------
# Shapes

SHAPES = [
    ((2, 3), (3, 4)),
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((7, 1, 2, 3), (5, 3, 4)),
    ((1, 2, 3), (6, 5, 3, 4)),
    ((0, 3), (3, 4)),
    ((2, 0), (0, 4)),
    ((0, 2, 3), (1, 3, 4)),
]
MISFITS = [
    ((2, 3), (4, 5)),
    ((3,), (4, 5)),
    ((2, 3), (4,)),
    ((3,), (4,)),
    ((), (3,)),
    ((3,), ()),
    ((2, 3), ()),
    ((2, 2, 3), (3, 3, 5)),
    ((7, 2, 1, 2, 3), (3, 1, 3, 5)),
    ((4, 2, 3), (5, 2, 3, 6)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_result_shape_is_torchs(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    assert gemm.result_shape(a, b) == list(torch.matmul(torch.empty(a), torch.empty(b)).shape)


@pytest.mark.parametrize(("a", "b"), MISFITS, ids=str)
def test_misfits_are_refused_in_torchs_words(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """The message starts with torch.matmul's sentence for the same shapes."""
    with pytest.raises(RuntimeError) as torchs:
        torch.matmul(torch.zeros(a), torch.zeros(b))
    with pytest.raises(RuntimeError) as ours:
        mm32.matmul(torch.zeros(a), torch.zeros(b))
    assert str(ours.value).startswith(str(torchs.value))
    assert "mm32.matmul" in str(ours.value)


@pytest.mark.parametrize(
    ("a", "b"), [((6, 2, 3), (6, 4, 5)), ((2, 2, 3), (4, 5)), ((2, 2, 3), (4,)), ((3,), (2, 4, 5))]
)
def test_batched_misfit_names_both_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(\d+x3 and 4x\d+\)") as error:
        mm32.matmul(torch.zeros(a), torch.zeros(b))
    assert f"(mm32.matmul of {list(a)} and {list(b)})" in str(error.value)


# ---------------------------------------------------------------------------------------------------------------------
# Types, dtypes, devices, options


def ones(*shape: int, **options: object) -> torch.Tensor:
    return torch.ones(*shape, **options)


def inputs(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> list[int]:
    return gemm.check_inputs(a, b, bias, None, "fp32")


TYPES = {
    "a_list": (lambda: mm32.matmul([[1.0]], ones(1, 1)), "takes torch.Tensors or packed operands, got list and Tensor"),
    "b_none": (
        lambda: mm32.matmul(ones(1, 1), None),
        "takes torch.Tensors or packed operands, got Tensor and NoneType",
    ),
    "bias_float": (lambda: mm32.matmul(ones(1, 1), ones(1, 1), bias=1.0), "bias must be a torch.Tensor.*got float"),
    "out_list": (lambda: mm32.matmul(ones(1, 1), ones(1, 1), out=[0.0]), "out must be a torch.Tensor, got list"),
    "explained": (lambda: mm32.explain(2048, 8192), "mm32.explain takes torch.Tensors or packed .*, got int and int"),
    "weight_float": (lambda: mm32.linear(ones(2, 3), 3.0), "mm32.linear: weight must be a torch.Tensor, got float"),
}
VALUES = {
    "activation": (
        lambda: mm32.matmul(ones(2, 2), ones(2, 2), activation="swish"),
        "unknown activation 'swish': mm32 fuses None, 'relu', .*'sigmoid'",
    ),
    "precision": (
        lambda: mm32.matmul(ones(2, 2), ones(2, 2), precision="fp16"),
        "unknown precision 'fp16': mm32 has 'fp32', 'bf16x6', 'ieee'",
    ),
    "kernel": (
        lambda: mm32.matmul(ones(2, 2), ones(2, 2), kernel="cublas"),
        "unknown kernel 'cublas': mm32 has 'auto', 'naive'",
    ),
    "layout": (lambda: gemm.from_layout("nx", 1, 1, 1), "unknown layout 'nx': mm32 has nn, nt, tn, tt"),
    "no such memory": (
        lambda: gemm.from_layout("nn", 1, 2**31, 2**31),
        "a matrix of 2147483648 x 2147483648 has more bytes than can be counted in 63 bits",
    ),
    "negative": (lambda: gemm.from_layout("nn", 1, -2, 1), "N must not be negative, got -2"),
}
TENSORS = {
    "a_half": (
        lambda: mm32.matmul(ones(2, 2).half(), ones(2, 2).half()),
        r"takes torch.float32 or torch.float64 on cpu; a is torch.float16: convert it \(a.float\(\)\)",
    ),
    "b_int": (lambda: inputs(ones(2, 2), ones(2, 2).long()), r"b is torch.int64: convert it \(b.float\(\)\)"),
    "bias_bfloat16": (
        lambda: inputs(ones(2, 2), ones(2, 2), ones(2).bfloat16()),
        r"bias is torch.bfloat16: convert it \(bias.float\(\)\)",
    ),
    "b_double": (
        lambda: mm32.matmul(ones(2, 2), ones(2, 2).double()),
        "expected a, b and bias to have the same dtype, but got: a torch.float32, b torch.float64",
    ),
    "bias_float_beside_doubles": (
        lambda: inputs(ones(2, 2).double(), ones(2, 2).double(), ones(2)),
        "same dtype, but got: a torch.float64, bias torch.float32",
    ),
    "b_elsewhere": (
        lambda: inputs(ones(2, 2), ones(2, 2, device="meta")),
        "Expected all tensors to be on the same device, but a is on cpu and b is on meta",
    ),
    "bias_elsewhere": (
        lambda: inputs(ones(2, 2), ones(2, 2), ones(2, device="meta")),
        "Expected all tensors to be on the same device, but a is on cpu and bias is on meta",
    ),
    "sparse": (
        lambda: inputs(ones(2, 2).to_sparse(), ones(2, 2)),
        r"takes dense tensors; a has layout torch.sparse_coo: call a.to_dense\(\)",
    ),
    "bias_of_k": (
        lambda: mm32.matmul(ones(2, 3), ones(3, 4), bias=ones(3)),
        r"bias must have shape \(4,\), one value for each column.*got \(3,\).*\[2, 3\] and \[3, 4\]",
    ),
    "bias_of_rank_2": (
        lambda: mm32.matmul(ones(2, 3), ones(3, 4), bias=ones(1, 4)),
        r"bias must have shape \(4,\).*got \(1, 4\)",
    ),
    "bias_of_a_vector": (
        lambda: mm32.matmul(ones(2, 3), ones(3), bias=ones(2)),
        r"bias must have shape \(1,\).*got \(2,\)",
    ),
    "weight_not_transposed": (
        lambda: mm32.linear(ones(2, 3), ones(3, 5)),
        r"cannot be multiplied \(2x3 and 5x3\) \(mm32.linear of x \[2, 3\] and weight \[3, 5\], which must be \(N, 3\)\)",
    ),
    "weight_of_rank_3": (
        lambda: mm32.linear(ones(2, 3), ones(2, 4, 3)),
        r"weight must be \(N, K\) or \(K,\), got \(2, 4, 3\)",
    ),
}


@pytest.mark.parametrize("case", [*TYPES, *VALUES, *TENSORS])
def test_what_is_refused(case: str) -> None:
    error = TypeError if case in TYPES else ValueError if case in VALUES else RuntimeError
    call, words = {**TYPES, **VALUES, **TENSORS}[case]
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("kernel", ["auto", *mm32.plan.KERNELS])
@pytest.mark.parametrize("activation", [None, *names()])
def test_every_option_is_taken(kernel: str, activation: str | None) -> None:
    for precision in PRECISIONS:
        assert mm32.matmul(ones(1, 1), ones(1, 1), activation=activation, precision=precision, kernel=kernel) > 0.5


# ---------------------------------------------------------------------------------------------------------------------
# out


OUTS = {
    "columns": (lambda a, b: ones(2, 5), r"out has shape \(2, 5\), the result has shape \(2, 4\)"),
    "rank": (lambda a, b: ones(1, 2, 4), r"out has shape \(1, 2, 4\), the result has shape \(2, 4\)"),
    "dtype": (lambda a, b: ones(2, 4).double(), "out must be a dense torch.float32 tensor on cpu.*got torch.float64"),
    "device": (lambda a, b: ones(2, 4, device="meta"), "got torch.float32 on meta"),
    "sparse": (lambda a, b: ones(2, 4).to_sparse(), "with layout torch.sparse_coo"),
    "expanded": (
        lambda a, b: ones(4).expand(2, 4),
        r"more than one element of the written-to tensor.*strides \(0, 1\)",
    ),
    "windows": (lambda a, b: ones(5).as_strided((2, 4), (1, 1)), "more than one element of the written-to tensor"),
    "in_a": (lambda a, b: a.as_strided((2, 4), (4, 1)), "out overlaps a in memory"),
    "in_b": (lambda a, b: b.as_strided((2, 4), (4, 1), 4), "out overlaps b in memory"),
    "is_part_of_b": (lambda a, b: b[1:], "out overlaps b in memory"),
}


@pytest.mark.parametrize("case", OUTS)
def test_out_that_does_not_do(case: str) -> None:
    make, words = OUTS[case]
    a, b = ones(4, 3)[:2], ones(3, 4)
    with pytest.raises(RuntimeError, match=words):
        gemm.check_out(make(a, b), [2, 4], a, b, None)


def test_out_may_not_be_the_bias() -> None:
    memory = ones(12)
    with pytest.raises(RuntimeError, match="out overlaps bias in memory"):
        mm32.matmul(ones(2, 3), ones(3, 4), bias=memory[4:8], out=memory[:8].view(2, 4))
    assert mm32.matmul(ones(2, 3), ones(3, 4), bias=memory[8:], out=memory[:8].view(2, 4)).eq(4).all()


def test_out_beside_an_input_in_one_buffer() -> None:
    memory = ones(3, 20)
    result = mm32.matmul(memory.view(-1)[:9].view(3, 3), ones(3, 4), out=memory.view(-1)[9:21].view(3, 4))
    assert result.eq(3).all()
    assert memory.view(-1)[21:].eq(1).all()
    assert memory.view(-1)[:9].eq(1).all()


def test_out_between_columns_of_an_input() -> None:
    """Slices of columns of one buffer have rows that interleave and never overlap, so out may be one of them."""
    memory = ones(5, 12)
    result = mm32.matmul(memory[:, :3], ones(3, 4), out=memory[:, 3:7])
    assert result.eq(3).all()
    assert memory[:, :3].eq(1).all()
    assert memory[:, 7:].eq(1).all()
    with pytest.raises(RuntimeError, match="out overlaps a in memory"):
        mm32.matmul(memory[:, :3], ones(3, 4), out=memory[:, 2:6])


# ---------------------------------------------------------------------------------------------------------------------
# Strides: the addresses that a Gemm describes are the tensors' own

dims = st.integers(1, 3)


@st.composite
def placed(draw: st.DrawFn, shape: tuple[int, ...], distinct: bool = False) -> torch.Tensor:
    """Draw a view of that shape whose elements hold their own place in storage: permuted, stepped, maybe with stride 0."""
    order = draw(st.permutations(range(len(shape))))
    strides, reach = [0] * len(shape), draw(st.integers(1, 2))
    for d in order:
        if not distinct and draw(st.integers(0, 5)) == 0:
            continue
        strides[d] = reach
        reach = reach * shape[d] + draw(st.sampled_from([0, 0, 0, 1, 4]))
    start = draw(st.integers(0, 3))
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    return torch.arange(start + span, dtype=torch.float32).as_strided(shape, strides, start)


@settings(max_examples=300, deadline=None)
@given(st.data(), st.integers(0, 12))
def test_shared_elements_are_found(data: st.DataObject, apart: int) -> None:
    """No two tensors that share an element pass for disjoint."""
    memory = torch.zeros(400)

    def view() -> tuple[torch.Tensor, set[int]]:
        shape = tuple(data.draw(st.lists(dims, min_size=1, max_size=3)))
        places = data.draw(placed(shape))
        return places, set((places + 0.0).flatten().int().tolist())

    (x, x_at), (y, y_at) = view(), view()
    on_memory = [memory.as_strided(t.shape, t.stride(), t.storage_offset() + skip) for t, skip in ((x, 0), (y, apart))]
    if x_at & {place + apart for place in y_at}:
        assert storage.overlap(*on_memory)
        assert storage.overlap(*reversed(on_memory))


@st.composite
def operands(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    batch = draw(st.lists(dims, max_size=4))
    m, n, k = draw(dims), draw(dims), draw(dims)

    def part() -> list[int]:
        kept = batch[draw(st.integers(0, len(batch))) :]
        return [1 if draw(st.integers(0, 3)) == 0 else size for size in kept]

    a_shape = (k,) if draw(st.integers(0, 7)) == 0 else (*part(), m, k)
    b_shape = (k,) if draw(st.integers(0, 7)) == 0 else (*part(), k, n)
    a, b = draw(placed(a_shape)), draw(placed(b_shape))
    out = draw(placed(tuple(gemm.result_shape(a_shape, b_shape)), distinct=True))
    return a, b, out


def addresses(g: Gemm, which: str) -> torch.Tensor:
    """Return the storage offset in an operand, relative to its first element, of each (batch, m, n, k) of the product."""
    matrix: Matrix = getattr(g, which)
    found = []
    for index in itertools.product(*(range(size) for size in g.batch)):
        base = sum(i * s for i, s in zip(index, matrix.batch, strict=True))
        for i, j, p in itertools.product(range(g.m), range(g.n), range(g.k)):
            row, col = {"a": (i, p), "b": (p, j), "out": (i, j)}[which]
            found.append(base + row * matrix.row + col * matrix.col)
    return torch.tensor(found, dtype=torch.float32)


@settings(max_examples=400, deadline=None)
@given(operands())
def test_addresses(case: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
    """Every multiplication of the described problem, in order, is one of the tensors', however batches are merged or folded."""
    a, b, out = case
    g = gemm.describe(a, b, None, out)
    rows, columns = (a if a.dim() > 1 else a[None]), (b if b.dim() > 1 else b[:, None])
    m, k, n = rows.shape[-2], rows.shape[-1], columns.shape[-1]
    batch = torch.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
    full = (*batch, m, n, k)
    wanted = {
        "a": rows[..., :, None, :].expand(full),
        "b": columns.mT[..., None, :, :].expand(full),
        "out": out.reshape(*batch, m, n)[..., None].expand(full),
    }
    assert g.batches * g.m * g.n == out.numel()
    for which, tensor in (("a", a), ("b", b), ("out", out)):
        assert torch.equal(addresses(g, which) + tensor.storage_offset(), wanted[which].reshape(-1)), which
    assert g.k == k
    assert 1 not in g.batch


@pytest.mark.parametrize(
    ("a", "b", "batch", "m"),
    [
        (torch.empty(3, 4, 5, 7), torch.empty(7, 6), (), 60),  # a shared B: one tall matrix
        (torch.empty(3, 5, 7), torch.empty(7, 6).expand(3, 7, 6), (), 15),
        (torch.empty(64, 1, 7), torch.empty(7, 6), (), 64),
        (torch.empty(3, 7, 5).mT, torch.empty(7, 6), (3,), 5),  # A's matrices are not rows of one
        (torch.empty(3, 4, 5, 7), torch.empty(3, 4, 7, 6), (12,), 5),
        (torch.empty(3, 4, 5, 7), torch.empty(4, 7, 6), (3, 4), 5),
        (torch.empty(4, 3, 5, 7).transpose(0, 1), torch.empty(3, 4, 7, 6), (3, 4), 5),
        (torch.empty(5, 7), torch.empty(3, 4, 7, 6), (12,), 5),
        (torch.empty(1, 1, 5, 7), torch.empty(1, 7, 6), (), 5),
        (torch.empty(2, 3, 5, 7)[:, :, :4], torch.empty(7, 6), (6,), 4),  # a gap between matrices
    ],
)
def test_batches_are_merged(a: torch.Tensor, b: torch.Tensor, batch: tuple[int, ...], m: int) -> None:
    out = torch.empty(gemm.result_shape(a.shape, b.shape))
    g = gemm.describe(a, b, None, out)
    assert (g.batch, g.m, g.n, g.k) == (batch, m, b.shape[-1], a.shape[-1])


def test_too_many_batch_dimensions() -> None:
    rank = MAX_BATCH_RANK + 1
    a = torch.empty(*(2,) * rank, 3, 2).permute(*reversed(range(rank)), rank, rank + 1)
    with pytest.raises(RuntimeError, match=rf"at most {MAX_BATCH_RANK} batch dimensions.*got {rank}"):
        gemm.describe(a, torch.empty(2, 2), None, torch.empty(*(2,) * rank, 3, 2))
    g = gemm.describe(a[0], torch.empty(2, 2), None, torch.empty(*(2,) * (rank - 1), 3, 2))
    assert g.batch == (2,) * MAX_BATCH_RANK


def test_the_header_has_the_same_limit() -> None:
    header = (compiler.KERNEL_DIR / "common/problem.cuh").read_text()
    assert re.search(rf"#define MM32_MAX_BATCH_RANK {MAX_BATCH_RANK}\n", header)


# ---------------------------------------------------------------------------------------------------------------------
# What a Gemm says about itself


@pytest.mark.parametrize("layout", LAYOUTS)
def test_from_layout_is_what_tensors_give(layout: str) -> None:
    a = torch.empty(8, 12) if layout[0] == "n" else torch.empty(12, 8).T
    b = torch.empty(12, 4) if layout[1] == "n" else torch.empty(4, 12).T
    described = gemm.describe(a, b, torch.empty(4), torch.empty(8, 4), "relu", "ieee")
    assert gemm.from_layout(layout, 8, 4, 12, bias=True, activation="relu", precision="ieee") == described
    assert described.layout == layout
    assert (described.flops, described.bias, described.empty) == (2 * 8 * 4 * 12, 1, False)


def test_general_strides_have_their_own_letter() -> None:
    a, b = torch.empty(16, 24)[::2, ::2], torch.empty(24, 8)[::2, ::2]
    assert gemm.describe(a, b, None, torch.empty(8, 4)).layout == "ss"


def test_strides_of_single_elements_do_not_count() -> None:
    g = gemm.describe(torch.empty(1, 9).as_strided((1, 9), (77, 1)), torch.empty(9, 1), None, torch.empty(1, 1))
    assert (g.a.row, g.a.col, g.b.row, g.b.col, g.out.row, g.out.col) == (0, 1, 1, 0, 0, 0)


@pytest.mark.parametrize(
    ("matrix", "along_col"),
    [
        (Matrix(8, 1, (), True), True),
        (Matrix(8, 1, (), False), False),
        (Matrix(9, 1, (), True), False),
        (Matrix(8, 1, (64, 63), True), False),
        (Matrix(8, 1, (64, 0), True), True),
        (Matrix(8, 2, (), True), False),
        (Matrix(0, 1, (), True), True),
    ],
)
def test_vectorizable(matrix: Matrix, along_col: bool) -> None:
    assert matrix.vectorizable("col") is along_col
    assert Matrix(matrix.col, matrix.row, matrix.batch, matrix.aligned).vectorizable("row") is along_col


def test_alignment_is_of_the_first_element() -> None:
    memory = torch.empty(64)
    assert memory.data_ptr() % 16 == 0
    for offset in range(8):
        view = memory[offset : offset + 16].view(4, 4)
        g = gemm.describe(view, view, None, view)
        assert (g.a.aligned, g.b.aligned, g.out.aligned) == (offset % 4 == 0,) * 3


def test_strides_of_a_new_tensor_are_torchs() -> None:
    for shape in ((), (3,), (2, 3, 4), (1, 1), (5, 1, 3), (0, 4), (4, 0, 2)):
        assert storage.contiguous_strides(shape) == torch.empty(shape).stride()
