"""mm32 in place of torch's products. It runs under the CPU key with a stand-in for the kernels; everything else is as on a
card."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import mm32
from mm32 import dispatch, prepared
from mm32 import dropin as module
from mm32.dropin import OPERATORS, DropIn, Left, Taken
from mm32.gemm import Gemm
from support.dropin import MISFITS, outcome


class StandIn:
    """A stand-in for the planner and the kernels. It decides as it is told, and multiplies in float64 by numpy, since an operator
    of torch's could come back here."""

    def __init__(self) -> None:
        self.asked: list[tuple[Gemm, str, int]] = []
        self.outs: list[tuple[int, tuple[int, ...]]] = []  # address and strides
        self.answer: Callable[[Gemm], Left | None] = lambda problem: None
        self.gate: Callable[[], None] = lambda: None

    def __call__(self, problem: Gemm, index: int, replaced: str, passes: int) -> Taken | Left:
        self.asked.append((problem, replaced, passes))
        return self.answer(problem) or Taken("stand-in", 0.5, self.run)

    def run(self, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor) -> None:
        self.gate()
        self.outs.append((out.data_ptr(), out.stride()))
        product = a.detach().numpy().astype("float64") @ b.detach().numpy().astype("float64")
        if bias is not None:
            product = product + bias.detach().numpy()
        out.copy_(torch.from_numpy(product))


@pytest.fixture
def standin() -> StandIn:
    return StandIn()


@pytest.fixture
def dropin(standin: StandIn) -> Iterator[DropIn]:
    made = DropIn("CPU", standin)
    yield made
    made.withdraw_all()


@contextlib.contextmanager
def on(dropin: DropIn, precision: str | None = None) -> Iterator[None]:
    who = object()
    dropin.request(who, precision)
    try:
        yield
    finally:
        dropin.withdraw(who)


@pytest.fixture
def torch_precision() -> Iterator[Callable[[str], None]]:
    before = torch.backends.cuda.matmul.fp32_precision

    def choose(value: str) -> None:
        torch.backends.cuda.matmul.fp32_precision = value

    yield choose
    torch.backends.cuda.matmul.fp32_precision = before


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def table() -> list[str]:
    return [f(f"aten::{op}") for op in OPERATORS for f in (torch._C._dispatch_dump, torch._C._dispatch_dump_table)]


# ---------------------------------------------------------------------------------------------------------------------
# Values

SHAPES = {2: ((3, 5), (5, 4)), 3: ((2, 3, 5), (2, 5, 4))}
ADDENDS = {
    2: [(4,), (1,), (), (1, 4), (3, 1), (3, 4), (1, 1)],
    3: [(4,), (), (1, 4), (3, 4), (1, 1, 4), (2, 1, 4), (2, 3, 1), (2, 3, 4)],
}
# Addends with one value for each column.
FUSED = {2: [(4,), (1,), (), (1, 4), (1, 1)], 3: [(4,), (), (1, 4), (1, 1, 4)]}
SCALES = [(1, 1), (0, 1), (1, 2.5), (0, 2.5), (-0.5, 1), (0.25, -3), (True, 2), (1, True), (0.5, True), (1.0, 1.0)]


def operands(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(torch.randn(s) for s in SHAPES[rank])  # type: ignore[return-value]


def outs(rank: int) -> list[torch.Tensor | None]:
    shape = (*SHAPES[rank][0][:-1], SHAPES[rank][1][-1])
    return [None, torch.full(shape, torch.nan), torch.full(shape, torch.nan).mT.contiguous().mT]


@pytest.mark.parametrize("rank", [2, 3])
def test_products(rank: int, dropin: DropIn, seed: int) -> None:
    function = torch.mm if rank == 2 else torch.bmm
    a, b = operands(rank)
    wanted = function(a, b)
    with on(dropin):
        for out in outs(rank):
            for x in (a, a.mT.contiguous().mT):
                result = function(x, b) if out is None else function(x, b, out=out)
                close(result, wanted)
                assert out is None or result is out
                assert result.is_contiguous() or out is not None
    assert (dropin.stats().kernels, dropin.stats().reasons) == ({"stand-in": 6}, {})


@pytest.mark.parametrize(("beta", "alpha"), SCALES)
@pytest.mark.parametrize("rank", [2, 3])
def test_sums_with_every_scale_and_addend(
    rank: int, beta: float, alpha: float, dropin: DropIn, standin: StandIn, seed: int
) -> None:
    function = torch.addmm if rank == 2 else torch.baddbmm
    a, b = operands(rank)
    for shape in ADDENDS[rank]:
        addend = torch.randn(shape)
        wanted = function(addend.double(), a.double(), b.double(), beta=beta, alpha=alpha).float()
        if beta == 0:
            addend = torch.full(shape, torch.nan)  # must not be read
        for out in outs(rank):
            keep = {} if out is None else {"out": out}
            standin.asked.clear()
            with on(dropin):
                result = function(addend, a, b, beta=beta, alpha=alpha, **keep)
            close(result, wanted)
            assert out is None or result is out
            ((problem, _, passes),) = standin.asked
            fused = beta == alpha == 1 and shape in FUSED[rank]
            assert (problem.bias is not None) == fused
            slow = alpha != 1 and beta not in (0, 1)
            assert passes == (0 if fused or (beta == 0 and alpha == 1) else 2 if slow else 1)
            prepared.CACHE.clear()
    assert not dropin.stats().reasons


def test_a_bias_spread_over_the_rows_is_a_bias(dropin: DropIn, standin: StandIn, seed: int) -> None:
    """Compiled code passes such a bias: an (M, N) view of the (N,) bias."""
    (a, b), bias = operands(2), torch.randn(8)[::2]
    with on(dropin):
        close(torch.addmm(bias.expand(3, 4), a, b), bias + (a @ b))
    assert standin.asked[0][0].bias == 2


def test_special_values_go_where_torch_lets_them(dropin: DropIn) -> None:
    a, b = torch.tensor([[1.0, torch.inf]]), torch.ones(2, 2)
    addend = torch.tensor([torch.nan, 1.0])
    with on(dropin):
        result = torch.addmm(addend, a, b)
    assert torch.isnan(result[0, 0])
    assert result[0, 1] == torch.inf


# ---------------------------------------------------------------------------------------------------------------------
# Sums in place


def in_place(how: str, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **scales: float) -> torch.Tensor:
    """Call the operator for tensors of this rank: the method, or the function whose addend is `out` itself or a view of it."""
    if how == "method":
        return (c.addmm_ if a.dim() == 2 else c.baddbmm_)(a, b, **scales)
    function = torch.addmm if a.dim() == 2 else torch.baddbmm
    return function(c if how == "out" else c[:], a, b, **scales, out=c)


HOWS = ["method", "out", "view"]


def places(rank: int) -> dict[str, tuple[torch.Tensor, torch.Tensor, tuple[int, ...]]]:
    """Return memory, a view of it with the result's shape, and the strides that new memory for the product should have."""
    shape = (*SHAPES[rank][0][:-1], SHAPES[rank][1][-1])
    whole, buffer, columns = torch.randn(shape), torch.randn(*shape[:-2], 7, 9), torch.randn(*shape[:-2], 9, 7)
    rows, by_column = ((4, 1), (1, 3)) if rank == 2 else ((12, 4, 1), (12, 1, 3))
    return {
        "whole": (whole, whole, rows),
        "part": (buffer, buffer[..., 2:5, 3:7], rows),
        "columns": (columns, columns.mT[..., 2:5, 3:7], by_column),
    }


@pytest.mark.parametrize(("beta", "alpha"), [*SCALES, (0.95, 0.05), (1, -1)])
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("rank", [2, 3])
def test_sums_in_place(
    rank: int, how: str, beta: float, alpha: float, dropin: DropIn, standin: StandIn, seed: int
) -> None:
    function = torch.addmm if rank == 2 else torch.baddbmm
    a, b = operands(rank)
    for memory, c, strides in places(rank).values():
        wanted = function(c.double(), a.double(), b.double(), beta=beta, alpha=alpha).float()
        if beta == 0:
            c.fill_(torch.nan)  # must not be read
        inside = torch.zeros_like(memory, dtype=torch.bool)
        inside.as_strided(c.shape, c.stride(), c.storage_offset()).fill_(True)
        around = memory[~inside].clone()
        prepared.CACHE.clear()
        standin.asked.clear()
        standin.outs.clear()
        with on(dropin):
            result = in_place(how, c, a, b, beta=beta, alpha=alpha)
        close(c, wanted)
        assert result is c
        assert torch.equal(memory[~inside], around)
        ((problem, _, passes),), ((address, used),) = standin.asked, standin.outs
        assert problem.bias is None
        # The product has memory of its own only if the old values are still needed.
        assert (address == c.data_ptr(), used) == ((True, c.stride()) if beta == 0 else (False, strides))
        assert (problem.out.row, problem.out.col) == used[-2:]
        assert passes == (0 if beta == 0 and alpha == 1 else 2 if alpha != 1 and beta not in (0, 1) else 1)
    assert (dropin.stats().kernels, dropin.stats().reasons) == ({"stand-in": 3}, {})


@pytest.mark.parametrize("how", HOWS)
def test_one_row_in_place_is_no_bias(how: str, dropin: DropIn, standin: StandIn, seed: int) -> None:
    """It has one value for each column, but the kernel may read a bias after it has written the result."""
    a, b, c = torch.randn(1, 5), torch.randn(5, 4), torch.randn(1, 4)
    wanted = c + a @ b
    with on(dropin):
        in_place(how, c, a, b)
    close(c, wanted)
    assert standin.asked[0][0].bias is None
    assert standin.outs[0][0] != c.data_ptr()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("rank", [2, 3])
def test_out_in_place_and_out_elsewhere_are_told_apart(
    rank: int, order: tuple[int, int], dropin: DropIn, standin: StandIn, seed: int
) -> None:
    """Calls of one operator, on the same forms, differ by their out. If that is other memory, the product is computed in it."""
    function = torch.addmm if rank == 2 else torch.baddbmm
    (a, b), c = operands(rank), torch.randn(*SHAPES[rank][0][:-1], 4)
    elsewhere, before = torch.empty_like(c), c.clone()
    wanted = function(c, a, b)
    with on(dropin):
        for i in order * 2:
            c.copy_(before)
            standin.outs.clear()
            out = (c, elsewhere)[i]
            assert function(c, a, b, out=out) is out
            close(out, wanted)
            assert (standin.outs[0][0] == elsewhere.data_ptr()) == (out is elsewhere)
            assert out is c or torch.equal(c, before)
    assert len(standin.asked) == 2
    assert dropin.stats().kernels == {"stand-in": 4}


def test_special_values_in_place_go_where_torch_lets_them(dropin: DropIn) -> None:
    """0.75 * inf + 0.25 stays Inf; computed as an interpolation, inf + 0.25 * (1 - inf), it would not."""
    a, b, c = torch.ones(1, 1), torch.ones(1, 3), torch.tensor([[torch.inf, -torch.inf, torch.nan]])
    with on(dropin):
        c.addmm_(a, b, beta=0.75, alpha=0.25)
    assert c[0, :2].tolist() == [torch.inf, -torch.inf]
    assert torch.isnan(c[0, 2])
    assert dropin.stats().taken == 1


def test_a_blocked_factorisation(dropin: DropIn, seed: int) -> None:
    """Blocks of columns of one buffer are updated by products of blocks beside them."""

    def factor(a: torch.Tensor) -> torch.Tensor:
        for i in range(0, 12, 3):
            a[i : i + 3, i : i + 3] = torch.linalg.cholesky(a[i : i + 3, i : i + 3])
            diagonal, panel = a[i : i + 3, i : i + 3], a[i + 3 :, i : i + 3]
            panel.copy_(torch.linalg.solve_triangular(diagonal.mT, panel.clone(), upper=True, left=False))
            for left in range(i + 3, 12, 3):
                p, q, t = a[left:, i : i + 3], a[left : left + 3, i : i + 3], a[left:, left : left + 3]
                torch.addmm(t, p, q.T, alpha=-1, out=t)
        return a.tril()

    x = torch.randn(12, 12)
    a = x @ x.T + 12 * torch.eye(12)
    wanted = torch.linalg.cholesky(a.double()).float()
    with on(dropin):
        close(factor(a.clone()), wanted)
    assert (dropin.stats().kernels, dropin.stats().reasons) == ({"stand-in": 6}, {})


@pytest.mark.parametrize("rank", [2, 3])
def test_versions_and_gradients_in_place(rank: int, dropin: DropIn, seed: int) -> None:
    """A call counts as one change of the tensor, like a call of torch's, and backward notices it."""
    (a, b), c = operands(rank), torch.randn(*SHAPES[rank][0][:-1], 4)

    def run() -> list[object]:
        leaves = [t.clone().requires_grad_() for t in (c, a, b)]
        x = leaves[0] * 1
        versions = [x._version]
        y = in_place("method", x, *leaves[1:], beta=0.95, alpha=0.05)
        versions.append(x._version)
        (y.square().sum()).backward()
        with torch.no_grad():
            for how in HOWS:
                in_place(how, x, a, b, beta=0)
                versions.append(x._version)
        stale = c.clone()
        z = (stale * leaves[0]).sum()  # keeps stale for backward
        in_place("method", stale, a, b)
        return [versions, *(t.grad for t in leaves), outcome(z.backward)]

    wanted = run()
    assert wanted[0] == [0, 1, 2, 3, 4]
    assert "modified by an inplace operation" in wanted[-1][1]
    with on(dropin):
        found = run()
    assert (found[0], found[-1]) == (wanted[0], wanted[-1])
    for one, two in zip(found[1:-1], wanted[1:-1], strict=True):
        close(one, two)
    assert dropin.stats().left == 0
    assert dropin.stats().taken >= 5


@pytest.mark.parametrize("which", ["a", "b", "part of a", "part of b", "all"])
@pytest.mark.parametrize("how", HOWS)
def test_in_place_on_an_operand_is_left(how: str, which: str, dropin: DropIn, seed: int) -> None:
    """It is left to torch, with torch's values."""

    def run() -> torch.Tensor:
        memory, other = values.clone(), torch.ones(4, 4)
        c, part = memory[:4], memory[2:6]
        a = {"a": c, "part of a": part, "all": c}.get(which, other)
        b = {"b": c, "part of b": part, "all": c}.get(which, other)
        in_place(how, c, a, b, beta=0.5)
        return memory

    values = torch.randn(6, 4)
    wanted = run()
    with on(dropin):
        # Operands of the same forms that share no memory
        in_place(how, torch.ones(4, 4), torch.ones(4, 4), torch.ones(4, 4), beta=0.5)
        assert torch.equal(run(), wanted)
    stats = dropin.stats()
    assert (stats.kernels, stats.reasons) == ({"stand-in": 1}, {"out shares memory with an input": 1})


@pytest.mark.parametrize("rank", [2, 3])
def test_in_place_on_repeated_elements_is_torchs(rank: int, dropin: DropIn, seed: int) -> None:
    """torch's error is raised, or for baddbmm_ on a CPU, torch's result is returned."""
    (a, b), shape = operands(rank), (*SHAPES[rank][0][:-1], 4)
    for how in HOWS:
        for strides in ((8, 2, 1)[-rank:], (8, 0, 1)[-rank:]):

            def call(how: str = how, strides: tuple[int, ...] = strides) -> torch.Tensor:
                return in_place(how, torch.ones(60).as_strided(shape, strides), a, b)

            before = outcome(call)
            with on(dropin):
                assert outcome(call) == before
    assert dropin.stats().reasons == {"out refers to one element more than once": 6}


def test_an_out_that_overlaps_a_part_of_the_addend_is_torchs_error(dropin: DropIn, seed: int) -> None:
    """For the same memory in another order of elements torch raises no such error; whatever it does, mm32 leaves that to it
    too."""
    (a, b), values = operands(2), torch.randn(5, 4)

    def run(out: Callable[[torch.Tensor], torch.Tensor]) -> tuple[tuple[str, str], torch.Tensor]:
        memory = values.clone()
        return outcome(lambda: torch.addmm(memory[:3], a, b, out=out(memory))), memory

    outs = [lambda memory: memory[1:4], lambda memory: memory.view(-1)[:12].view(4, 3).T]
    wanted = [run(out) for out in outs]
    assert "refer to a single memory location" in wanted[0][0][1]
    with on(dropin):
        for out, (said, memory) in zip(outs, wanted, strict=True):
            found = run(out)
            assert found[0] == said
            assert torch.equal(found[1], memory)
    assert dropin.stats().reasons == {"out shares memory with an input": 2}


LEFT_IN_PLACE: dict[str, tuple[Callable[[], torch.Tensor], str]] = {
    "double": (lambda: torch.ones(2, 2).double().addmm_(torch.ones(2, 3).double(), torch.ones(3, 2).double()), "not float32"),
    "alpha 0": (lambda: torch.ones(2, 2).addmm_(torch.full((2, 3), torch.nan), torch.ones(3, 2), alpha=0), "alpha is 0"),
    "beta inf": (
        lambda: torch.ones(2, 2).addmm_(torch.ones(2, 3), torch.ones(3, 2), beta=torch.inf),
        "alpha or beta is not a finite real number",
    ),
    "no rows": (lambda: torch.ones(0, 2).addmm_(torch.ones(0, 3), torch.ones(3, 2)), "empty"),
    "no inner": (lambda: torch.ones(2, 2).addmm_(torch.ones(2, 0), torch.ones(0, 2), beta=3), "empty"),
    "no inner, batch": (lambda: torch.ones(2, 2, 2).baddbmm_(torch.ones(2, 2, 0), torch.ones(2, 0, 2), beta=0), "empty"),
}  # fmt: skip


@pytest.mark.parametrize("case", LEFT_IN_PLACE)
def test_what_is_left_in_place(case: str, dropin: DropIn) -> None:
    call, reason = LEFT_IN_PLACE[case]
    wanted = call()
    with on(dropin):
        found = call()
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    assert (dropin.stats().kernels, dropin.stats().reasons) == ({}, {reason: 1})


@pytest.mark.parametrize("how", HOWS)
def test_where_a_product_in_place_finds_no_memory_torch_runs_it(
    how: str, dropin: DropIn, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    (a, b), c = operands(2), torch.randn(3, 4)
    wanted, unread = torch.addmm(c, a, b, beta=2), torch.addmm(c, a, b, beta=0)

    def short(*_: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("out of memory, as this test has it")

    monkeypatch.setattr(dispatch, "empty", short)
    with on(dropin):
        in_place(how, c, a, b, beta=2)
        assert torch.equal(c, wanted)
        assert dropin.stats(reset=True).reasons == {"no memory for a product that is added in place": 1}
        in_place(how, c, a, b, beta=0)  # needs no memory
        close(c, unread)
        assert dropin.stats().kernels == {"stand-in": 1}
        with pytest.raises(torch.OutOfMemoryError):  # torch would need as much memory, so it is not tried
            torch.addmm(c, a, b)


def test_deterministic_mode_fills_no_result(dropin: DropIn, seed: int) -> None:
    """torch fills what Tensor.new_empty makes with NaN there, a pass over a result that is written anyway."""
    a, b = operands(2)
    torch.use_deterministic_algorithms(True)
    try:
        with on(dropin), torch.profiler.profile() as profile:
            torch.mm(a, b)
            mm32.matmul(a, b)
    finally:
        torch.use_deterministic_algorithms(False)
    assert not [event.name for event in profile.events() if "fill_" in event.name]


def update(stat: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return stat.addmm_(g, g.T, beta=0.95, alpha=0.05)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.compiler)])
def test_compiled_in_place(
    backend: str, dropin: DropIn, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    g, stat = torch.randn(4, 6), torch.eye(4)
    wanted = 0.95 * stat + 0.05 * (g @ g.T)
    compiled = torch.compile(update, backend=backend, fullgraph=True)
    with on(dropin):
        compiled(stat.clone(), g)
        dropin.stats(reset=True)
        result = compiled(stat, g)
    close(stat, wanted)
    assert result.data_ptr() == stat.data_ptr()
    assert (dropin.stats().taken, dropin.stats().left) == (1, 0)
    torch._dynamo.reset()


def test_modes_in_place(dropin: DropIn, seed: int) -> None:
    """A dispatch mode and a subclass see one operator, as without mm32; a fake tensor does not reach mm32."""
    g, stat = torch.randn(4, 6), torch.randn(4, 4)
    wanted = 0.95 * stat + 0.05 * (g @ g.T)
    with on(dropin):
        with Seen() as seen:
            result = update(stat.clone(), g)
        close(result, wanted)
        assert [name for name in seen.operators if "mm" in name] == ["aten.addmm_.default"]
        assert len(seen.operators) == 3  # the others are clone and transpose
        assert dropin.stats().taken == 1
        with FakeTensorMode() as mode:
            assert update(mode.from_tensor(stat), mode.from_tensor(g)).shape == (4, 4)
        assert dropin.stats().taken + dropin.stats().left == 1
        with torch.inference_mode():
            close(update(stat.clone(), g), wanted)
        subclass = stat.clone().as_subclass(Logged)
        Logged.functions.clear()
        assert type(update(subclass, g)) is Logged
        assert Logged.functions == ["addmm_"]
        close(subclass.as_subclass(torch.Tensor), wanted)
        torch.use_deterministic_algorithms(True)
        try:
            close(update(stat.clone(), g), wanted)
        finally:
            torch.use_deterministic_algorithms(False)
    assert (dropin.stats().taken, dropin.stats().left) == (4, 0)


def test_transforms_in_place(dropin: DropIn, seed: int) -> None:
    g, stats = torch.randn(5, 4, 6), torch.randn(5, 4, 4)
    wanted = 0.95 * stats + 0.05 * (g @ g.mT)
    calls: list[Callable[[], object]] = [
        lambda: torch.vmap(update)(stats.clone(), g),
        lambda: torch.vmap(torch.func.grad(lambda x, stat: update(stat.clone(), x).sum()))(g, stats),
    ]
    before = [call() for call in calls]
    with on(dropin):
        found = [call() for call in calls]
        assert dropin.stats().taken > 0
    close(found[0], wanted)
    for one, two in zip(found, before, strict=True):
        close(one, two)


def test_sums_over_a_batch_arrive(dropin: DropIn, seed: int) -> None:
    """torch's addbmm calls addmm_ for each matrix of the batch."""
    c, a, b = torch.randn(3, 4), torch.randn(2, 3, 5), torch.randn(2, 5, 4)
    wanted = 0.5 * c + 2 * (a @ b).sum(0)
    with on(dropin):
        close(torch.addbmm(c, a, b, beta=0.5, alpha=2), wanted)
    assert (dropin.stats().taken, dropin.stats().left) == (2, 0)


# ---------------------------------------------------------------------------------------------------------------------
# What is left to torch


def test_other_types_are_left_with_the_reason(dropin: DropIn) -> None:
    kinds = [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.complex64]
    pairs = [(torch.ones(2, 3, dtype=d), torch.ones(3, 2, dtype=d)) for d in kinds]
    with on(dropin):
        for a, b in pairs:
            result = torch.mm(a, b)
            assert result.dtype == a.dtype
            assert (result == 3).all()
    assert (dropin.stats().kernels, dropin.stats().reasons) == ({}, {"not float32": len(kinds)})


@pytest.mark.parametrize("how", ["alpha_0", "alpha_inf", "beta_nan"])
def test_scales_that_are_left(how: str, dropin: DropIn) -> None:
    options = {"alpha_0": {"alpha": 0}, "alpha_inf": {"alpha": torch.inf}, "beta_nan": {"beta": torch.nan}}[how]
    a, b, addend = torch.full((2, 2), torch.nan), torch.ones(2, 2), torch.ones(2, 2)
    wanted = torch.addmm(addend, a, b, **options)
    with on(dropin):
        assert torch.equal(torch.addmm(addend, a, b, **options), wanted) or bool(wanted.isnan().all())
    reason = "alpha is 0" if how == "alpha_0" else "alpha or beta is not a finite real number"
    assert dropin.stats().reasons == {reason: 1}


def test_nothing_to_compute_is_left(dropin: DropIn) -> None:
    with on(dropin):
        assert torch.mm(torch.ones(0, 3), torch.ones(3, 2)).shape == (0, 2)
        assert torch.equal(torch.mm(torch.ones(2, 0), torch.ones(0, 3)), torch.zeros(2, 3))
        assert torch.equal(torch.addmm(torch.ones(3), torch.ones(2, 0), torch.ones(0, 3)), torch.ones(2, 3))
    assert dropin.stats().reasons == {"empty": 3}


def test_where_torch_is_faster_it_runs(dropin: DropIn, standin: StandIn, seed: int) -> None:
    """torch's product runs, so the result has its bits."""
    standin.answer = lambda problem: Left("too small") if problem.m < 100 else None
    small, large, b = torch.randn(10, 7), torch.randn(100, 7), torch.randn(7, 5)
    wanted = small @ b
    with on(dropin):
        assert torch.equal(small @ b, wanted)
        close(large @ b, (large.double() @ b.double()).float())
    assert dropin.stats().kernels == {"stand-in": 1}
    assert dropin.stats().reasons == {"too small": 1, "not float32": 1}


def test_tiny_products_are_not_looked_up(standin: StandIn, seed: int) -> None:
    """This holds for every operator if both operands are tiny; if one is larger, the product is looked up."""
    tiny = DropIn("CPU", standin, tiny=36)
    a, c, wide = torch.randn(6, 6), torch.randn(6, 6), torch.randn(6, 7)
    calls: list[Callable[[], torch.Tensor]] = [
        lambda: a @ c,
        lambda: torch.addmm(torch.ones(6), a, c, beta=0.5, alpha=2),
        lambda: torch.bmm(a.view(4, 3, 3), c.view(4, 3, 3)),
        lambda: torch.baddbmm(torch.ones(3), a.view(4, 3, 3), c.view(4, 3, 3)),
        lambda: torch.mm(a, c, out=torch.empty(6, 6)),
        lambda: torch.ones(6, 6).addmm_(a, c),
        lambda: torch.ones(4, 3, 3).baddbmm_(a.view(4, 3, 3), c.view(4, 3, 3)),
        lambda: torch.mm(a, torch.ones(6, 0)),
    ]
    wanted = [call() for call in calls]
    kept = len(prepared.CACHE)
    with on(tiny):
        assert all(torch.equal(call(), want) for call, want in zip(calls, wanted, strict=True))
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            torch.mm(torch.ones(2, 3), torch.ones(4, 5))
        assert (standin.asked, len(prepared.CACHE)) == ([], kept)
        assert tiny.stats(reset=True).reasons == {module.TOO_SMALL: len(calls) + 1}
        close(a @ wide, (a.double() @ wide.double()).float())
        close(wide.T @ a, (wide.T.double() @ a.double()).float())
    assert tiny.stats().kernels == {"stand-in": 2}


def test_where_bf16x6_was_asked_for_tiny_products_are_looked_up(standin: StandIn, seed: int) -> None:
    tiny = DropIn("CPU", standin, tiny=1 << 20)
    with on(tiny, "bf16x6"):
        torch.mm(torch.randn(6, 6), torch.randn(6, 6))
    assert tiny.stats().kernels == {"stand-in": 1}


def test_other_types_are_not_looked_up(standin: StandIn) -> None:
    made, kept = DropIn("CPU", standin), len(prepared.CACHE)
    a = torch.ones(3, 3, dtype=torch.float64)
    with on(made):
        assert torch.equal(a @ a, 3 * a)
    assert (made.stats().reasons, len(prepared.CACHE)) == ({"not float32": 1}, kept)


def test_out_of_another_shape_is_torchs_to_resize(dropin: DropIn, seed: int) -> None:
    (a, b), empty, wrong = operands(2), torch.empty(0), torch.empty(7, 7)
    wanted = a @ b
    with on(dropin):
        assert torch.equal(torch.mm(a, b, out=empty), wanted)
        with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
            torch.mm(a, b, out=wrong)
    assert torch.equal(empty, wanted)
    assert torch.equal(wrong, wanted)
    assert dropin.stats().reasons == {"out of another shape: torch resizes it": 2}


def test_out_that_shares_memory_is_left(dropin: DropIn, standin: StandIn, seed: int) -> None:
    """It is left to torch, whose result depends on the machine: on some machines torch reads what it has already written."""
    a, b = torch.randn(2, 4, 4).unbind()
    by_torch = a.clone()
    torch.mm(by_torch, b, out=by_torch)
    with on(dropin):
        torch.mm(a, b, out=torch.empty(4, 4))  # the same form, with out elsewhere
        torch.mm(a, b, out=a)
    assert torch.equal(a, by_torch)
    assert len(standin.outs) == 1
    stats = dropin.stats()
    assert (stats.kernels, stats.reasons) == ({"stand-in": 1}, {"out shares memory with an input": 1})
    # Blocks of columns of one buffer interleave, but share no element.
    buffer = torch.randn(4, 12)
    wanted = buffer[:, :4] @ buffer[:, 4:8]
    with on(dropin):
        torch.mm(buffer[:, :4], buffer[:, 4:8], out=buffer[:, 8:])
    close(buffer[:, 8:], wanted)
    assert dropin.stats().kernels == {"stand-in": 2}


def test_out_that_repeats_an_element_is_torchs_error(dropin: DropIn) -> None:
    (a, b), out = operands(2), torch.empty(4).expand(3, 4)
    before = outcome(lambda: torch.mm(a, b, out=out))
    with on(dropin):
        assert outcome(lambda: torch.mm(a, b, out=out)) == before
    assert dropin.stats().reasons == {"out refers to one element more than once": 1}


@pytest.mark.parametrize("misfit", MISFITS)
def test_errors_are_torchs(misfit: str, dropin: DropIn) -> None:
    def call() -> object:
        return MISFITS[misfit]("cpu")

    before = outcome(call)
    assert before[0] != "value"
    with on(dropin):
        assert outcome(call) == before
    # torch refuses an inference tensor only after the product.
    assert "inference" in misfit or not dropin.stats().kernels


def test_what_fails_in_the_kernel_is_raised(dropin: DropIn, standin: StandIn) -> None:
    def gate() -> None:
        raise mm32.LaunchError("launching kernel stand-in: out of luck")

    standin.gate = gate
    with on(dropin), pytest.raises(mm32.LaunchError, match="out of luck"):
        torch.ones(2, 3) @ torch.ones(3, 2)
    assert dropin.stats().taken == 0


# ---------------------------------------------------------------------------------------------------------------------
# What it reaches, and what it does not touch


def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


def step(net: Callable, x: torch.Tensor, parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    y = net(x)
    return [y.detach(), *torch.autograd.grad(y.square().sum(), parameters)]


def test_forward_and_backward(dropin: DropIn, seed: int) -> None:
    net, x = model(), torch.randn(2, 5, 6, requires_grad=True)
    wanted = step(net, x, [x, *net.parameters()])
    with on(dropin):
        found = step(net, x, [x, *net.parameters()])
    for one, two in zip(found, wanted, strict=True):
        close(one, two)
    # Forward, the input's gradient and the weight's gradient, for each of two layers.
    assert (dropin.stats().kernels, dropin.stats().reasons) == ({"stand-in": 6}, {})


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.compiler)])
def test_compiled(backend: str, dropin: DropIn, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether compiled before mm32 is on or while it is, code looks up the kernels at each call."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    net, x = model(), torch.randn(7, 6)
    parameters = list(net.parameters())
    wanted = step(net, x, parameters)
    compiled = torch.compile(net, backend=backend, fullgraph=True)
    for first in (True, False):
        with on(dropin):
            found = step(compiled, x, parameters)
        for one, two in zip(found, wanted, strict=True):
            close(one, two)
        stats = dropin.stats(reset=True)
        # Two forward, two gradients of weights, one of a hidden layer; compiling may run further products.
        assert stats.taken >= 5 if first else stats.taken == 5
        assert not stats.reasons
    step(compiled, x, parameters)
    assert dropin.stats().taken == 0
    torch._dynamo.reset()


def test_what_is_made_of_products_arrives(dropin: DropIn, seed: int) -> None:
    a, b = torch.randn(2, 3, 4), torch.randn(4, 5)
    calls: list[Callable[[], torch.Tensor]] = [
        lambda: a @ b,
        lambda: torch.einsum("bij,jk->bik", a, b),
        lambda: F.linear(a, b.T, torch.ones(5)),
        lambda: torch.baddbmm(torch.ones(1), a, a.mT),
        lambda: torch.linalg.multi_dot([a[0], b, b.T]),
    ]
    for call in calls:
        wanted = call()
        with on(dropin):
            close(call(), wanted)
        assert dropin.stats().taken > 0
        assert dropin.stats(reset=True).left == 0


class Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.operators: list[str] = []

    def __torch_dispatch__(self, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        self.operators.append(str(func))
        return func(*args, **(kwargs or {}))  # type: ignore[operator]


class Logged(torch.Tensor):
    functions: list[str] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        Logged.functions.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_dispatch_mode_sees_the_same_operators(dropin: DropIn, seed: int) -> None:
    def run() -> list[str]:
        net, x = model(), torch.randn(2, 6)
        with Seen() as seen:
            step(net, x, list(net.parameters()))
        return seen.operators

    wanted = run()
    assert "aten.addmm.default" in wanted
    with on(dropin):
        assert run() == wanted
    assert dropin.stats().taken == 5


def test_a_subclass_sees_the_same_functions(dropin: DropIn, seed: int) -> None:
    """It sees them in backward too, where a product gets the subclass itself, and gradients have the same types."""

    def run() -> tuple[list[str], list[type]]:
        x, w, grad = torch.randn(5, 6).requires_grad_(), torch.randn(6, 4).requires_grad_(), torch.randn(5, 4)
        result = torch.addmm(torch.randn(5, 4), x, w)
        Logged.functions.clear()
        torch.autograd.backward(result, grad.as_subclass(Logged))
        functions = list(Logged.functions)
        return functions, [type(x.grad), type(w.grad)]

    wanted = run()
    with on(dropin):
        assert run() == wanted
    assert dropin.stats().taken == 3


def test_fake_meta_and_vmap(dropin: DropIn, standin: StandIn, seed: int) -> None:
    a, b = torch.randn(6, 3, 4), torch.randn(4, 5)
    with on(dropin):
        with FakeTensorMode() as mode:
            assert (mode.from_tensor(a) @ mode.from_tensor(b)).shape == (6, 3, 5)
        assert (a[0].to("meta") @ b.to("meta")).device.type == "meta"
        assert dropin.stats().taken + dropin.stats().left == 0
        close(torch.vmap(torch.mm, in_dims=(0, None))(a, b), torch.einsum("bij,jk->bik", a, b))
        close(torch.func.jacrev(lambda x: (x @ b).sum())(a[0]), b.sum(1).expand(3, 4))
    assert dropin.stats().taken >= 3


def test_autocast_still_lowers(dropin: DropIn, seed: int) -> None:
    a, b = operands(2)
    with on(dropin), torch.autocast("cpu", torch.bfloat16):
        assert (a @ b).dtype == torch.bfloat16
    assert dropin.stats().reasons == {"not float32": 1}


def test_inference_mode(dropin: DropIn, seed: int) -> None:
    a, b = operands(2)
    with on(dropin), torch.inference_mode():
        result = torch.addmm(torch.ones(3, 4), a, b, beta=2, alpha=3)
    assert result.is_inference()
    close(result, 2 + 3 * (a @ b))


def test_mm32_itself_still_works(dropin: DropIn, seed: int) -> None:
    """mm32's operators compute with torch.matmul on the CPU, which reaches the drop-in once."""
    a, b = operands(2)
    wanted = a @ b
    with on(dropin):
        close(mm32.matmul(a, b), wanted)
    assert dropin.stats().taken == 1


# ---------------------------------------------------------------------------------------------------------------------
# On and off


def test_off_is_as_before(dropin: DropIn, seed: int) -> None:
    before = table()
    a, b = operands(2)
    for _ in range(3):
        dropin.request("me", None)
        assert table() != before
        a @ b
        dropin.request("me", "tf32")
        dropin.withdraw_all()
        gc.collect()
        assert table() == before
    a @ b
    assert dropin.stats().taken == 3


def test_another_override_stays_underneath(dropin: DropIn, seed: int) -> None:
    """An override that anyone registered before is called for products that are left, and is still there afterwards."""
    calls = []
    a, b = operands(2)
    wanted = a @ b
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("mm", lambda x, y: calls.append(1) or torch.zeros(x.shape[0], y.shape[1]), "CPU")
        with on(dropin):
            close(a @ b, wanted)
            assert not calls
            assert torch.equal(a.double() @ b.double(), torch.zeros(3, 4))
            assert len(calls) == 1
        assert torch.equal(a @ b, torch.zeros(3, 4))


def test_nested_blocks(dropin: DropIn, standin: StandIn) -> None:
    before = table()

    def precision() -> str:
        prepared.CACHE.clear()
        torch.ones(2, 3) @ torch.ones(3, 2)
        return standin.asked[-1][0].precision

    with on(dropin, "ieee"):
        assert precision() == "ieee"
        with on(dropin, "tf32"):
            assert precision() == "tf32"
            with on(dropin):
                assert precision() == "fp32"
        assert precision() == "ieee"
    assert table() == before
    with pytest.raises(ZeroDivisionError), on(dropin):
        _ = 1 / 0
    assert table() == before


def test_blocks_that_overlap_without_nesting(dropin: DropIn, standin: StandIn) -> None:
    """Blocks may overlap in two threads: mm32 is on until the last block ends, and the block entered last decides."""
    before = table()
    dropin.request("first", "ieee")
    dropin.request("second", "tf32")
    dropin.withdraw("first")
    torch.ones(2, 3) @ torch.ones(3, 2)
    assert standin.asked[-1][0].precision == "tf32"
    dropin.withdraw("second")
    assert table() == before
    dropin.request("first", None)
    dropin.withdraw_all()
    dropin.withdraw("first")
    assert table() == before


def test_precision_follows_torch(
    dropin: DropIn, standin: StandIn, torch_precision: Callable[[str], None], seed: int
) -> None:
    a, b = operands(2)
    seen = []
    for asked in (None, "ieee"):
        for value in ("ieee", "tf32", "ieee"):
            torch_precision(value)
            with on(dropin, asked):
                a @ b
            seen.append((standin.asked[-1][0].precision, standin.asked[-1][1]))
            assert torch.backends.cuda.matmul.fp32_precision == value
    assert seen == [
        ("fp32", "fp32"),
        ("tf32", "tf32"),
        ("tf32", "tf32"),  # the form is known from before, so the stand-in is not asked again
        ("ieee", "fp32"),
        ("ieee", "tf32"),
        ("ieee", "tf32"),
    ]
    assert len(standin.asked) == 4


def test_every_way_to_ask_torch_for_tf32_is_followed(dropin: DropIn, standin: StandIn, seed: int) -> None:
    a, b = operands(2)
    before = torch.get_float32_matmul_precision()

    def precision() -> str:
        prepared.CACHE.clear()
        with on(dropin):
            a @ b
        return standin.asked[-1][0].precision

    try:
        for asked, wanted in (("high", "tf32"), ("highest", "fp32")):
            torch.set_float32_matmul_precision(asked)
            assert precision() == wanted
            assert torch.get_float32_matmul_precision() == asked
        for allowed in (True, False):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            assert precision() == ("tf32" if allowed else "fp32")
            assert torch.backends.cuda.matmul.allow_tf32 == allowed
    finally:
        torch.set_float32_matmul_precision(before)


def test_the_precision_that_torch_defaults_to_is_fp32(dropin: DropIn, standin: StandIn, seed: int) -> None:
    assert torch.backends.cuda.matmul.fp32_precision != "tf32"
    with on(dropin):
        torch.mm(*operands(2))
    assert standin.asked[0][0].precision == "fp32"


def test_threads(dropin: DropIn, seed: int) -> None:
    forms = [(torch.randn(m, 9), torch.randn(9, 4), torch.randn(4)) for m in range(1, 9)]
    wanted = [torch.addmm(c, a, b) for a, b, c in forms]
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(50):
                for (a, b, c), expected in zip(forms, wanted, strict=True):
                    close(torch.addmm(c, a, b), expected)
        except BaseException as error:
            failures.append(error)

    with on(dropin):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
    assert (dropin.stats().taken, dropin.stats().left) == (4 * 50 * 8, 0)


def test_a_thread_inside_a_kernel_finishes_when_it_is_turned_off(dropin: DropIn, standin: StandIn, seed: int) -> None:
    inside, leave = threading.Event(), threading.Event()

    def gate() -> None:
        inside.set()
        assert leave.wait(30)

    standin.gate = gate
    (a, b), results = operands(2), []
    with on(dropin):
        thread = threading.Thread(target=lambda: results.append(a @ b))
        thread.start()
        assert inside.wait(30)
    gc.collect()
    close(a @ b, (a.double() @ b.double()).float())
    leave.set()
    thread.join()
    close(results[0], a @ b)


SWITCHING = """
import threading, time, torch
from mm32.dropin import DropIn, Left
torch.set_num_threads(1)
made, stop, a = DropIn("CPU", lambda *asked: Left("always")), False, torch.eye(8)
def work():
    while not stop:
        assert torch.equal(torch.mm(a, a), a)
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
end = time.monotonic() + 4
while time.monotonic() < end:
    made.request("me", None)
    made.withdraw_all()
stop = True
for thread in threads:
    thread.join()
print("done", made.stats().left > 0)
"""


def test_switching_while_other_threads_multiply() -> None:
    """A thread may be waiting for the GIL inside a kernel that is deregistered: that crashed before references to such kernels
    were kept."""
    found = subprocess.run([sys.executable, "-c", SWITCHING], capture_output=True, text=True, timeout=120)
    assert (found.returncode, found.stdout) == (0, "done True\n"), found.stderr


# ---------------------------------------------------------------------------------------------------------------------
# Decisions and counts


def test_a_form_is_asked_for_once(dropin: DropIn, standin: StandIn, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands(2)
    with on(dropin):
        for _ in range(3):
            a @ b
            torch.addmm(torch.zeros(4), a, b, alpha=2)
            torch.addmm(torch.zeros(4), a, b, alpha=3)  # another alpha, the same form
        assert len(standin.asked) == 2
        a.mT.contiguous().mT @ b
        assert len(standin.asked) == 3
        monkeypatch.setattr(prepared.CACHE, "most", 5)
        for m in range(10, 30):
            torch.randn(m, 5) @ b
            assert len(prepared.CACHE) <= 5
    assert dropin.stats().taken == 9 + 1 + 20


def test_a_refusal_for_now_is_asked_again(dropin: DropIn, standin: StandIn, seed: int) -> None:
    a, b = operands(2)
    standin.answer = lambda problem: Left("not now", for_now=True) if len(standin.asked) < 3 else None
    with on(dropin):
        for _ in range(4):
            a @ b
    assert len(standin.asked) == 3
    assert (dropin.stats().kernels, dropin.stats().reasons) == ({"stand-in": 2}, {"not now": 2})


def test_stats(dropin: DropIn, seed: int) -> None:
    a, b = operands(2)
    assert (dropin.stats().taken, dropin.stats().left) == (0, 0)
    with on(dropin):
        a @ b
        a @ b
        a.double() @ b.double()
    found = dropin.stats(reset=True)
    assert found == mm32.dropin.Stats({"stand-in": 2}, {"not float32": 1}, 1.0)
    assert str(found).splitlines() == [
        "mm32   2 calls under mm32.enable(), estimated to have saved 1e+03 ms",
        "       2 stand-in",
        "torch  1 calls",
        "       1 not float32",
    ]
    assert dropin.stats() == mm32.dropin.Stats({}, {}, 0.0)
    with on(dropin):
        a @ b
    assert dropin.stats() == mm32.dropin.Stats({"stand-in": 1}, {}, 0.5)


def test_a_reset_loses_no_count_of_another_thread(dropin: DropIn) -> None:
    a, each, counted = torch.eye(4), 5000, [0, 0.0]

    def work() -> None:
        for _ in range(each):
            torch.mm(a, a)

    def count() -> None:
        stats = dropin.stats(reset=True)
        counted[0] += stats.taken
        counted[1] += stats.estimated_seconds_saved

    with on(dropin):
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            count()
        count()
    assert counted == [3 * each, 0.5 * 3 * each]


# ---------------------------------------------------------------------------------------------------------------------
# The public functions


def test_public_functions_on_any_machine() -> None:
    """Products on the CPU stay with torch; a torch without CUDA has nothing that could be taken over."""
    before, a = table(), torch.ones(2, 2)
    try:
        mm32.enable()
        with mm32.enabled("tf32"):
            assert torch.equal(a @ a, 2 * a)
        assert (table() != before) == torch.backends.cuda.is_built()
    finally:
        mm32.disable()
    assert table() == before
    assert mm32.stats(reset=True).taken == 0
    mm32.disable()


def test_whether_it_is_on_can_be_asked() -> None:
    @mm32.enabled("tf32")
    def inner(deeper: int) -> bool:
        return mm32.is_enabled() and (not deeper or inner(deeper - 1))

    assert not mm32.is_enabled()
    block = mm32.enabled()
    with block, block:
        assert mm32.is_enabled()
    assert not mm32.is_enabled()
    assert inner(2)
    assert not mm32.is_enabled()
    mm32.enable()
    assert mm32.is_enabled()
    mm32.disable()
    assert not mm32.is_enabled()
    with pytest.raises(TypeError, match="is a context manager, and no condition"):
        assert mm32.enabled()


def test_compiled_code_asks_again_whether_it_is_on() -> None:
    asks = torch.compile(lambda x: x + 1 if mm32.is_enabled() else x - 1, backend="eager")
    zero = torch.zeros(1)
    assert asks(zero) == -1
    with mm32.enabled():
        assert asks(zero) == 1
    assert asks(zero) == -1


def test_unknown_precision() -> None:
    before = table()
    with pytest.raises(ValueError, match="unknown precision 'bf16': mm32 has 'fp32', 'bf16x6', 'ieee', 'tf32'"):
        mm32.enable("bf16")
    with pytest.raises(ValueError, match="unknown precision 'high'"), mm32.enabled("high"):
        pass
    with pytest.raises(TypeError, match=r"precision by name or nothing, got ReLU: .*mm32.replace_linear is for one"):
        mm32.enable(torch.nn.ReLU())
    assert table() == before


def test_without_a_card_the_numbers_say_why_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "no CUDA device here" in str(module.Stats({}, {}, 0.0))
    assert "no CUDA device" not in str(module.Stats({}, {"off": 1}, 0.0))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert "no CUDA device" not in str(module.Stats({}, {}, 0.0))
