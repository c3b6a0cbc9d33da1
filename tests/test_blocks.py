"""Products in blocks, within a workspace limit: what blocks cover, how much memory they take, what their steps compute (on the
CPU, each step by torch on the same memory), and the limit itself. The tests on a card are in test_blocks_gpu.py."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import math
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

import mm32
from mm32 import gemm, prepared, settings, torch_product
from mm32 import plan as planning
from mm32.cuda import blocks as running
from mm32.cuda import launch
from mm32.dropin import DropIn, Taken
from mm32.errors import CompileError, LaunchError
from mm32.export import script
from mm32.gemm import Gemm, from_layout
from mm32.plan import H200, Plan, Unplannable, blocks, plan
from mm32.plan.card import A100
from mm32.plan.forms import SOURCES
from support import driver_stub, simulated
from support.gpu import MATRIX_STORES, OUT_STORES, Placed, Store
from support.plan import random_gemm
from support.prepared import Executable, close

MIB = 2**20


def in_blocks(problem: Gemm, limit: int, on: planning.Card = H200) -> Plan | None:
    """Return a plan in blocks by the card's emulated kernel, or None if that needs no blocks or finds none."""
    try:
        made = plan(problem, on, planning.emulated_kernel(on), limit=limit)
    except Unplannable:
        return None
    return made if made.blocks is not None else None


# ---------------------------------------------------------------------------------------------------------------------
# Execution of a plan by torch, step for step, on the CPU


def viewed(
    memory: torch.Tensor, first: int, rows: int, cols: int, of: gemm.Matrix, batch: tuple[int, ...]
) -> torch.Tensor:
    """Return a view of the matrices that `of` describes, in flat memory of floats, with the first element at `first`."""
    return memory.as_strided((*batch, rows, cols), (*of.batch, of.row, of.col), first)


def executed(made: Plan, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor) -> None:
    """Run the plan's steps by torch, in float32 memory laid out as on a card. Sums and C are NaN beforehand."""
    assert made.blocks is not None
    assert made.workspace is not None
    sums = torch.full(((made.workspace.bytes - made.workspace.partial_sums) // 4,), math.nan)

    def flat(t: torch.Tensor) -> tuple[torch.Tensor, int]:
        whole = torch.as_strided(t, (t.untyped_storage().nbytes() // 4,), (1,), 0)
        return whole, t.storage_offset()

    (a_all, a0), (b_all, b0), (c_all, c0) = flat(a), flat(b), flat(out)
    for step in made.blocks.steps:
        g = made.blocks.parts[step.part].gemm
        to = (sums, 0) if step.writes_sums else (c_all, c0 + step.c)
        c = viewed(*to, g.m, g.n, g.out, g.batch)
        if step.reads_sums:
            result = c + viewed(sums, 0, g.m, g.n, g.a, g.batch)
        else:
            left = viewed(a_all, a0 + step.a, g.m, g.k, g.a, g.batch)
            right = viewed(b_all, b0 + step.b, g.k, g.n, g.b, g.batch)
            result = (left.double() @ right.double()).float()
        if g.bias is not None:
            assert bias is not None
            result = result + bias.as_strided((g.n,), (g.bias,), bias.storage_offset() + step.bias)
        c.copy_(torch_product.activate(result, g.activation))


def operands(rng: random.Random, m: int, n: int, k: int, batch: list[int]) -> tuple[Any, ...]:
    """Return A, B, a bias or None, and C, in storage that is seldom plain; values are integers with exact products and sums."""

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randint(-3, 4, shape).float()

    def stored(rank: int, stores: dict[str, Store]) -> Store:
        """Return random storage; in a batch, each matrix has memory of its own, in any order."""
        if rank == 2:
            return stores[rng.choice(list(stores))]
        order = list(range(rank - 2)) + rng.choice(([rank - 2, rank - 1], [rank - 1, rank - 2]))
        return Store(tuple(rng.sample(order, rank) if rng.random() < 0.3 else order), pad=rng.choice((0, 0, 1, 4)))

    kept_a, kept_b = batch[rng.randrange(len(batch) + 1) :], batch[rng.randrange(len(batch) + 1) :]
    a = Placed(numbers(*kept_a, m, k), stored(2 + len(kept_a), MATRIX_STORES)).view
    b = Placed(numbers(*kept_b, k, n), stored(2 + len(kept_b), MATRIX_STORES)).view
    shape = gemm.result_shape(a.shape, b.shape)
    out = Placed(tuple(shape), stored(len(shape), OUT_STORES))
    bias = numbers(n) if rng.random() < 0.5 else None
    return a, b, bias, out


def part_of(problem: Gemm, on: planning.Card, share: float) -> Plan | None:
    """Return a plan in blocks that take at most this share of the workspace of the whole product."""
    whole = plan(problem, on, planning.emulated_kernel(on)).workspace
    return None if whole is None else in_blocks(problem, int(share * whole.bytes), on)


SHARES = (0.9, 0.6, 0.35, 0.2, 0.1)


@given(st.randoms(use_true_random=False), st.sampled_from(SHARES), st.sampled_from([H200, A100, A100]))
@given_settings(max_examples=40, deadline=None)
def test_the_steps_compute_the_product(rng: random.Random, share: float, on: planning.Card) -> None:
    """They compute it for matrices in any storage, with batches, bias and activation, and write nothing outside C."""
    m, n, k = rng.choice((1, 3, 130, 300)), rng.choice((1, 2, 130, 257, 300)), rng.choice((600, 1300, 2100, 4097))
    batch = rng.choice(([], [], [5], [3, 4]))
    a, b, bias, out = operands(rng, m, n, k, batch)
    activation = rng.choice((None, "relu", "tanh"))
    problem = gemm.describe(a, b, bias, out.view, activation)
    made = part_of(problem, on, share)
    if made is None:
        return
    executed(made, a, b, bias, out.view)
    wanted = torch_product.activate(a.double() @ b.double() + (0 if bias is None else bias.double()), activation)
    torch.testing.assert_close(out.view.double(), wanted, rtol=1e-6, atol=1e-5)
    assert out.intact()


def test_blocks_of_every_kind_are_among_those() -> None:
    """The test above covers blocks of every kind: rows, columns, spans of K, matrices of a batch."""
    kinds = set()
    for shape, share in itertools.product([(5, 300, 300, 1300), (1, 300, 257, 4097), (12, 130, 300, 600)], SHARES):
        batch, m, n, k = shape
        a, b = torch.empty(batch, m, k, device="meta"), torch.empty(batch, k, n, device="meta")
        problem = gemm.describe(a, b, None, torch.empty(batch, m, n, device="meta"))
        made = part_of(problem, A100, share)
        if made is not None:
            cut = made.blocks
            kinds |= {("rows", cut.rows < problem.m), ("columns", cut.columns < problem.n), ("spans", cut.spans > 1)}
            kinds |= {("matrices", 1 < cut.matrices < problem.batches), ("one matrix", cut.matrices == 1)}
    assert {kind for kind, yes in kinds if yes} == {"rows", "columns", "spans", "matrices", "one matrix"}


# ---------------------------------------------------------------------------------------------------------------------
# What blocks cover, and what they take


def covered(made: Plan) -> None:
    """Assert that the steps cover each element of C, over all of K, once. The layout is nn, where a step's addresses tell which
    block it belongs to."""
    cut, g = made.blocks, made.gemm
    assert cut is not None
    spans: dict[int, list[tuple[int, int]]] = {}
    open_block = None
    for step in cut.steps:
        part = cut.parts[step.part].gemm
        if not step.reads_sums:
            if not step.writes_sums:
                open_block = step.c
                assert step.c not in spans
            assert open_block is not None
            # The first elements of A and of B both tell where K begins, and must agree.
            rest_a = step.a - open_block // g.n * g.a.row
            spans.setdefault(open_block, []).append((rest_a, part.k))
            assert step.b == rest_a * g.b.row + open_block % g.n
        else:
            assert step.c == open_block, "sums are added to the block that they are of, before the next one"
    area = 0
    for found in spans.values():
        assert [begin for begin, _ in found] == list(itertools.accumulate((k for _, k in found[:-1]), initial=0))
        assert sum(k for _, k in found) == g.k
        assert all(begin % 64 == 0 for begin, _ in found)
        lengths = [k for _, k in found]
        assert max(lengths) - min(lengths) <= 64 + 63
        assert len(found) == 1 or min(lengths) >= blocks.SHORTEST_SPAN > planning.emulated.SHORT_K
    seen = np.zeros((-(-g.m // 128), -(-g.n // 128)), int)
    for step in cut.steps:
        if not step.reads_sums and not step.writes_sums:
            part = cut.parts[step.part].gemm
            row, column = divmod(step.c, g.n)
            assert row % 128 == column % 128 == 0
            seen[row // 128 : -(-(row + part.m) // 128), column // 128 : -(-(column + part.n) // 128)] += 1
            area += part.m * part.n
    assert (seen == 1).all()
    assert area == g.m * g.n


@given(
    st.integers(1, 40000), st.integers(1, 40000), st.integers(1, 500000), st.sampled_from((64, 200, 1024, 2048)),
    st.sampled_from([H200, A100]), st.sampled_from(["fp32", "tf32"]),
)  # fmt: skip
@given_settings(max_examples=25, deadline=None)
def test_blocks_cover_c_and_k_once(m: int, n: int, k: int, limit: int, on: planning.Card, precision: str) -> None:
    made = in_blocks(from_layout("nn", m, n, k, precision=precision), limit * MIB, on)
    if made is not None:
        covered(made)
        within(made, limit * MIB)


def within(made: Plan, limit: int) -> None:
    """Assert that no part reaches beyond the workspace, which is no larger than the limit."""
    assert made.blocks is not None
    assert made.workspace is not None
    assert made.workspace.bytes <= limit == made.blocks.limit
    assert made.workspace.partial_sums % 256 == 0
    for part in made.blocks.parts:
        assert part.blocks is None
        if part.workspace is not None:
            assert part.workspace.bytes <= made.workspace.partial_sums
            assert part.workspace.prepacked == (False, False)
        g = part.gemm
        for step in made.blocks.steps:
            if made.blocks.parts[step.part] is part and (step.writes_sums or step.reads_sums):
                sums = g.out if step.writes_sums else g.a
                batch = zip(g.batch, sums.batch, strict=True)
                last = (g.m - 1) * sums.row + (g.n - 1) * sums.col + sum((size - 1) * s for size, s in batch)
                assert made.workspace.partial_sums + 4 * (last + 1) <= made.workspace.bytes
                break


def test_no_plan_of_any_kernel_takes_more_than_the_limit() -> None:
    rng, cut = random.Random(5), 0
    for _ in range(120):
        problem = random_gemm(rng)
        for limit in (0, MIB // 4, 4 * MIB):
            made = plan(problem, H200, limit=limit)
            assert made.workspace is None or made.workspace.bytes <= limit
            cut += made.blocks is not None
            if problem.empty or problem.k == 0:
                continue
            for kernel in ("simt", "tensorcore"):
                try:
                    named = plan(problem, H200, kernel, limit=limit)
                except Unplannable:
                    named = None
                if named is None:
                    with pytest.raises(
                        Unplannable, match=r"cannot run here: it wants .* mm32\.set_workspace_limit raises it"
                    ):
                        plan(problem, H200, kernel, limit=limit)
                    assert kernel == "tensorcore"
                    continue
                assert named.workspace is None or named.workspace.bytes <= limit
                cut += named.blocks is not None
                for part in named.blocks.parts if named.blocks else ():
                    for start in part.launches:
                        assert any(s.source == start.source and s.has(start.constants) for s in SOURCES)
    assert cut > 20


@pytest.mark.parametrize("on", [H200, A100], ids=lambda on: on.name)
def test_plans_within_the_limit_are_what_they_were(on: planning.Card) -> None:
    rng, compared = random.Random(6), 0
    for _ in range(80):
        problem = random_gemm(rng)
        for options in ({}, {"torch": "fp32"}, {"torch": "fp32", "drop_in": True, "passes": 1}):
            before = plan(problem, on, **options)
            needed = [
                plan(problem, on, kernel).workspace
                for kernel, _ in before.estimates
                if kernel not in ("torch", "naive", "dot", "tiled")
            ]
            most = max((space.bytes for space in needed if space is not None), default=0)
            assert plan(problem, on, **options, limit=most) == before
            compared += most > 0
    assert compared > 50
    large = from_layout("tt", 2048, 4096, 8192, bias=True, activation="relu")
    assert plan(large, H200, limit=settings.DEFAULT_LIMIT) == plan(large, H200)


def test_a_batch_goes_by_matrices() -> None:
    a, b = torch.empty(3, 40, 512, 1024, device="meta"), torch.empty(3, 1, 1024, 512, device="meta")
    problem = gemm.describe(a, b, None, torch.empty(3, 40, 512, 512, device="meta"))
    for limit in (40 * MIB, 120 * MIB, 200 * MIB):
        made = in_blocks(dataclasses.replace(problem, batch=(3, 40)), limit)
        if made is None:
            continue
        within(made, limit)
        cut = made.blocks
        assert cut.spans == 1
        assert sum(cut.parts[step.part].gemm.batches for step in cut.steps) == 120
        assert len({step.c for step in cut.steps}) == len(cut.steps)
        assert 1 <= cut.matrices <= 40
    assert made is not None


def test_what_is_not_aligned_is_not_taken_to_be() -> None:
    """If a batch's matrices begin at odd elements and each is a problem of its own, no plan may take them to be aligned."""
    a, b = torch.empty(6, 601, 1028, device="meta")[:, :600, :1024], torch.empty(1024, 512, device="meta")
    a = a.as_strided((6, 600, 1024), (601 * 1028 + 1, 1028, 1))
    made = in_blocks(gemm.describe(a, b, None, torch.empty(6, 600, 512, device="meta")), 6 * MIB)
    assert made is not None
    assert made.blocks.matrices == 1
    assert not any(part.gemm.a.aligned for part in made.blocks.parts if not part.adds)
    assert all(part.gemm.b.aligned for part in made.blocks.parts)


# ---------------------------------------------------------------------------------------------------------------------
# The estimate, and the page


def test_the_largest_product_of_a_card() -> None:
    """With operands of 59 GB each, blocks within 2 GiB are estimated to be a tenth slower, and faster than any other kernel."""
    problem = from_layout("nn", 32768, 32768, 450000)
    free, made = plan(problem, H200, "tensorcore"), plan(problem, H200, torch="fp32", limit=2 << 30)
    assert free.workspace.bytes > 150e9
    assert (made.kernel, made.workspace.bytes <= 2 << 30) == ("tensorcore", True)
    estimates = dict(made.estimates)
    assert estimates["tensorcore"] < 1.12 * dict(free.estimates)["tensorcore"]
    assert estimates["tensorcore"] < min(estimates["direct"], estimates["torch"], estimates["simt"])
    covered(made)


def test_more_memory_is_no_slower() -> None:
    problem = from_layout("nn", 20000, 20000, 20000)
    times = [plan(problem, H200, "tensorcore", limit=limit << 30).estimates[0][1] for limit in (1, 2, 3, 8)]
    assert times == sorted(times, reverse=True)
    assert times[-1] == plan(problem, H200, "tensorcore").estimates[0][1]


def test_a_product_in_blocks_explains_itself() -> None:
    made = plan(from_layout("nt", 3000, 3000, 20000, bias=True, activation="gelu"), H200, "tensorcore", limit=64 * MIB)
    page, cut = made.explain(), made.blocks
    assert cut.spans > 1
    assert made.scheme == "fp16x3"
    least = cut.depths[0]
    assert (
        f"blocks     {cut.count} of {min(cut.rows, 3000)} x {min(cut.columns, 3000)} of C, {cut.spans} spans of {least}"
        in page
    )
    assert f"{cut.products} products" in page
    assert f"{cut.count * (cut.spans - 1)} additions of the" in page
    assert "mm32_accumulate (common/accumulate.cu)" in page
    assert f"workspace  {made.workspace.bytes} bytes, limited to {64 * MIB}" in page
    assert cut.products + cut.count * (cut.spans - 1) == len(cut.steps)


def test_what_finds_no_blocks_says_so() -> None:
    problem = from_layout("nn", 4096, 4096, 4096)
    with pytest.raises(
        Unplannable, match=r"wants a workspace of \d+ bytes, and computes no blocks .* the limit of 1000"
    ):
        plan(problem, H200, "tensorcore", limit=1000)
    made = plan(problem, H200, limit=1000)
    assert made.kernel == "direct"
    assert "the limit of 1000" in dict(made.refused)["tensorcore"]
    assert plan(problem, A100, limit=0).kernel == "simt"


def test_packed_operands_are_not_limited() -> None:
    problem = from_layout("nn", 8192, 8192, 8192)
    for prepacked in ((True, False), (False, True), (True, True)):
        assert plan(problem, H200, "auto", prepacked, limit=MIB) == plan(problem, H200, "auto", prepacked)


def test_blocks_are_not_exported() -> None:
    made = plan(from_layout("nn", 4096, 4096, 4096), H200, "tensorcore", limit=64 * MIB)
    with pytest.raises(Unplannable, match=r"plan it without the limit, as mm32\.export\.export does"):
        script.export_script(made, "nn")


# ---------------------------------------------------------------------------------------------------------------------
# The kernel that adds, on the host


@pytest.mark.skipif(simulated.COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize(("m", "n"), [(5, 8), (7, 6), (8, 5), (12, 12)])
@pytest.mark.parametrize("stored", ["rows", "columns", "stepped", "shifted"])
def test_the_kernel_adds_and_finishes(m: int, n: int, stored: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """It adds in both of its widths and both directions, for a batch; memory between C's elements stays as it was."""
    pitch = {"rows": n, "columns": m, "stepped": 3 * n, "shifted": n + 1}[stored]
    lines = m if stored == "columns" else n
    row, col = {"rows": (pitch, 1), "columns": (1, pitch), "stepped": (pitch, 3), "shifted": (pitch, 1)}[stored]
    one = pitch * (n if stored == "columns" else m) + lines
    out = gemm.Matrix(row, col, (one,), False)
    sums = blocks._sums(m, n, (2,), row == 1)
    problem = Gemm(m, n, 0, (2,), sums, gemm.Matrix(0, 0, (0,), True), out, 1, "relu", "fp32")
    search = blocks._Search("tensorcore", planning.cost.Work(problem), H200, MIB)
    (start,) = search._addition(problem)[1].launches
    library = program(start, tmp_path_factory.getbasetemp() / "accumulate")
    c, t = simulated.aligned(2 * one, int(stored == "shifted")), simulated.aligned(2 * sums.batch[0])
    bias = simulated.aligned(n)
    rng = np.random.default_rng(1)
    for x in (c, t, bias):
        x[:] = rng.integers(-9, 10, x.size)
    before = c.copy()

    def view(x: np.ndarray, of: gemm.Matrix) -> np.ndarray:
        return np.lib.stride_tricks.as_strided(x, (2, m, n), [4 * s for s in (*of.batch, of.row, of.col)])

    wanted = before.copy()
    view(wanted, out)[:] = np.maximum(view(before, out) + view(t, sums) + bias, 0)
    argument = launch._template(problem)
    argument.a.data, argument.c.data, argument.bias = t.ctypes.data, c.ctypes.data, bias.ctypes.data
    library.run(ctypes.byref(argument), 2)
    np.testing.assert_array_equal(c, wanted)


def program(start: planning.Launch, folder: Path) -> ctypes.CDLL:
    folder.mkdir(exist_ok=True)
    return simulated.compiled(
        f'{launch.compiler.definitions(start.constants)}#include "{simulated.SIMULATOR}"\n{simulated.source(start.source)}\n'
        f'extern "C" void run(const Problem* p, int blocks) {{\n'
        f"    simulator::run(blocks, {start.block}, 0, [&] {{ {start.entry}(*p); }});\n}}\n",
        folder,
    )


# ---------------------------------------------------------------------------------------------------------------------
# The launcher


def test_each_step_is_launched_with_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps use one workspace and are launched in order; without a card (driver_stub.py)."""
    driver = driver_stub.install(monkeypatch)
    a, b, bias, out = torch.empty(700, 4000), torch.empty(900, 4000).T, torch.empty(900), torch.empty(700, 900)
    made = in_blocks(gemm.describe(a, b, bias, out, "relu"), 4 * MIB)
    assert made is not None
    assert made.blocks.spans > 1
    run = running.executable(made, -1)
    run(a, b, bias, out)
    launched, base = iter(driver.launched), 0
    for step in made.blocks.steps:
        part = made.blocks.parts[step.part]
        for start in part.launches:
            seen = next(launched)
            assert seen.entry == start.entry
            p, g = seen.problem(), part.gemm
            assert (p.m, p.n, p.k, p.c.row, p.c.col) == (g.m, g.n, g.k, g.out.row, g.out.col)
            if start.takes_workspace:
                base = base or seen.params().panels[0]
                assert seen.params().panels[0] == base, "the first thing in the workspace"
            sums = base + made.workspace.partial_sums
            assert p.c.data == (sums if step.writes_sums else out.data_ptr() + 4 * step.c)
            assert p.a.data == (sums if step.reads_sums else a.data_ptr() + 4 * step.a)
            if not step.reads_sums:
                assert p.b.data == b.data_ptr() + 4 * step.b
            assert p.bias == bias.data_ptr() + 4 * step.bias
    assert next(launched, None) is None
    prepared.CACHE.clear()


# ---------------------------------------------------------------------------------------------------------------------
# The limit: its texts, its variable, and how a change takes effect


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The state of a process in which nobody has asked for the limit yet."""
    monkeypatch.delenv("MM32_WORKSPACE_LIMIT", raising=False)
    monkeypatch.setattr(settings, "_limit", None)
    yield
    prepared.CACHE.clear()


@pytest.mark.parametrize(
    ("text", "size"),
    [("512MiB", 512 * MIB), (" 1.5 gib ", 1536 * MIB), ("4096", 4096), ("3KiB", 3072), ("1TiB", 2**40), ("none", None),
     (None, None), (7, 7), (0, 0), (np.int64(5), 5)],
)  # fmt: skip
def test_texts_of_limits(text: Any, size: int | None, limit: None) -> None:
    assert settings.bytes_of(text) == size
    mm32.set_workspace_limit(text)
    assert mm32.workspace_limit() == size


@pytest.mark.parametrize("text", ["2GB", "-1", "1e9", "", "lots", "0.3", -5, 1.5, True, "5 MiB MiB"])
def test_what_is_no_limit_is_named(text: Any, limit: None) -> None:
    with pytest.raises(ValueError, match=r"is not a workspace limit: give a number of bytes, .*'512MiB'"):
        mm32.set_workspace_limit(text)
    assert mm32.workspace_limit() == 2 << 30, "unchanged"


def test_the_variable(limit: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MM32_WORKSPACE_LIMIT", "96MiB")
    assert mm32.workspace_limit() == 96 * MIB
    mm32.set_workspace_limit("1GiB")
    assert mm32.workspace_limit() == 1 << 30, "what a program sets comes before it"
    monkeypatch.setattr(settings, "_limit", None)
    monkeypatch.setenv("MM32_WORKSPACE_LIMIT", "2GB")
    wrong = r"MM32_WORKSPACE_LIMIT='2GB' is not a workspace limit: give .*"
    with pytest.raises(ValueError, match=wrong):
        mm32.workspace_limit()
    with pytest.raises(ValueError, match=wrong):
        DropIn("CPU", lambda *_: planning).request("me", None)
    assert settings.WORKSPACE_LIMIT.unknown is not None


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_a_changed_limit_is_noticed(card: Callable, limit: None, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(running, "BlockedExecutable", Executable)
    a, b = torch.randn(1500, 2000), torch.randn(2000, 900)
    options: dict[str, Any] = {"kernel": "tensorcore"}
    for size, cut in ((None, False), ("8MiB", True), ("2GiB", False), ("6MiB", True)):
        mm32.set_workspace_limit(size)
        for _ in range(2):
            close(mm32.matmul(a, b, **options), a @ b)
        made = Executable.made[-1]
        assert (made.blocks is not None) == cut
        if cut:
            within(made, settings.bytes_of(size))
    assert len(Executable.made) == 4


def test_what_was_planned_before_a_change_is_not_kept() -> None:
    cache, entry = prepared.Cache(4), prepared.Entry()
    since = cache.generation
    cache.clear()
    cache.keep((1,), entry, since)
    assert cache.find((1,)) is None
    cache.keep((1,), entry, cache.generation)
    assert (cache.find((1,)), entry.made) == (entry, cache.generation)


# ---------------------------------------------------------------------------------------------------------------------
# Where memory is short


class Short(Executable):
    """An executable that finds no memory for workspaces of more than `most` bytes."""

    most = 0

    def __call__(self, *args: Any) -> None:
        if self.plan.workspace is not None and self.plan.workspace.bytes > Short.most:
            raise torch.OutOfMemoryError("out of memory, as this test has it")
        super().__call__(*args)


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
@pytest.mark.parametrize("kernel", ["auto", "tensorcore"])
def test_blocks_where_memory_is_short(
    kernel: str,
    card: Callable,
    limit: None,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    monkeypatch.setattr(launch, "Executable", Short)
    monkeypatch.setattr(running, "BlockedExecutable", Short)
    monkeypatch.setattr(prepared, "LEAST_LIMIT", 2 * MIB)
    a, b = torch.randn(1500, 2000), torch.randn(2000, 900)
    others = [
        name for name in planning.cost.SHARES if name.startswith(("direct.", "simt.")) and not name.endswith("launches")
    ]
    Short.most = 8 * MIB
    with planning.cost.shares({name: planning.cost.SHARES[name] / 1000 for name in others}):
        with pytest.warns(
            UserWarning, match=r"no memory for \d+ bytes .* 'tensorcore' .* in blocks with \d+ bytes from now on"
        ):
            close(mm32.matmul(a, b, kernel=kernel), a @ b)
        taken = Executable.made[-1]
        assert taken.blocks is not None
        assert taken.workspace.bytes <= Short.most
        count = len(Executable.made)
        close(mm32.matmul(a, b, kernel=kernel), a @ b)
        assert len(Executable.made) == count, "what was found is kept"
        Short.most = 0
        prepared.CACHE.clear()
        if kernel == "tensorcore":
            with pytest.raises(torch.OutOfMemoryError):
                mm32.matmul(a, b, kernel=kernel)
        else:
            with pytest.warns(UserWarning, match="without it, which is slower, runs instead"):
                close(mm32.matmul(a, b, kernel=kernel), a @ b)


@pytest.mark.parametrize("error", [None, LaunchError("no memory for a module"), CompileError("no NVRTC")])
def test_blocks_that_come_to_nothing_are_not_tried_at_every_call(
    error: Exception | None,
    card: Callable,
    limit: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are not tried again for a while. A module that cannot be loaded is not an error of the call: another kernel runs."""
    monkeypatch.setattr(launch, "Executable", Short)
    monkeypatch.setattr(running, "BlockedExecutable", Short)
    Short.most = 0
    a, b = torch.randn(6000, 3000), torch.randn(3000, 5000)
    out = torch.empty(6000, 5000)
    whole = prepared.executable(plan(gemm.describe(a, b, None, out), H200, "tensorcore"), 0, "tensorcore")
    tried: list[int] = []
    planned = prepared.planned

    def counted(*args: Any, **options: Any) -> Plan:
        tried.append(options["less"])
        return planned(*args, **options)

    monkeypatch.setattr(prepared, "planned", counted)
    if error is not None:
        monkeypatch.setattr(prepared, "executable", raising(error))
    clock = [100.0]
    monkeypatch.setattr(prepared.time, "monotonic", lambda: clock[0])
    for _ in range(3):
        assert prepared.in_blocks(whole, 0, (a, b, None, out), "tensorcore") is None
        clock[0] += 1
    once = len(tried)
    clock[0] += prepared.AGAIN
    assert prepared.in_blocks(whole, 0, (a, b, None, out), "tensorcore") is None
    assert len(tried) == 2 * once > 0


def raising(error: Exception) -> Callable[..., Any]:
    def raises(*_: Any, **__: Any) -> Any:
        raise error

    return raises


def test_a_batch_of_millions_is_planned_soon() -> None:
    begin = time.perf_counter()
    plan(from_layout("nn", 8, 8, 256), H200)
    a, b = torch.empty(4_000_000, 8, 256, device="meta"), torch.empty(4_000_000, 256, 8, device="meta")
    plan(gemm.describe(a, b, None, torch.empty(4_000_000, 8, 8, device="meta")), H200, torch="fp32", limit=2 << 30)
    assert time.perf_counter() - begin < 5.0  # it took 25 s when blocks were counted one by one


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_the_drop_in_takes_blocks_where_memory_is_short(
    card: Callable,
    limit: None,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    monkeypatch.setattr(running, "BlockedExecutable", Short)
    monkeypatch.setattr(prepared, "LEAST_LIMIT", 2 * MIB)

    def prepare(problem: Gemm, index: int, replaced: str, passes: int) -> Taken:
        made = plan(problem, H200, "tensorcore")
        return Taken(made.kernel, 1.0, Short(made, index), {"kernel": "tensorcore"})

    a, b, bias = torch.randn(1500, 2000), torch.randn(2000, 900), torch.randn(900)
    wanted = torch.addmm(bias, a, b), a @ b
    dropin = DropIn("CPU", prepare)
    dropin.request("me", None)
    try:
        Short.most = 8 * MIB
        with pytest.warns(UserWarning, match="in blocks"):
            close(torch.addmm(bias, a, b), wanted[0])
        with pytest.warns(UserWarning, match="in blocks"):
            close(torch.mm(a, b), wanted[1])
        close(torch.mm(a, b), wanted[1])
        with pytest.warns(UserWarning, match="in blocks"):
            close(torch.ones(1500, 900).addmm_(a, b, alpha=-1), 1 - wanted[1])
        assert dropin.stats(True).kernels == {"tensorcore": 4}
        Short.most = 0
        prepared.CACHE.clear()
        close(torch.mm(a, b), wanted[1])
        close(torch.ones(1500, 900).addmm_(a, b, alpha=-1), 1 - wanted[1])
        assert dropin.stats().reasons == {"no memory for mm32's workspace": 2}
    finally:
        dropin.withdraw("me")
