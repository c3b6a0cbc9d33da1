"""A product of an emulated kernel in blocks, where its workspace would be larger than a limit: how it is cut, and the steps.

A block is some matrices of the batch, or some rows and columns of one matrix. Each block is a product of its own; all use the
same workspace, one after another. If that is not enough, K is cut into spans too. The kernels store a tile of C, and a lower
tier or the fallback may store it again, so spans of K cannot be added up in C directly. The product of the first span goes to
C. The product of each later span goes to sums as large as a block, and another launch (common/accumulate.cu) adds these to C;
the last addition applies the epilogue.

Blocks begin at multiples of 128 rows and columns, and spans at multiples of 64 of K, so that what is aligned stays aligned. The
price of blocks (`cost.py`): each row of blocks packs B once, each column of blocks packs A once; sums move 12 bytes for each
element and span, besides what the product stores; and each product has launches and a last wave of tiles that is not full.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import NamedTuple

from mm32.gemm import Gemm, Matrix
from mm32.plan import cost, emulated, packing
from mm32.plan.card import Card
from mm32.plan.cost import Work
from mm32.plan.packing import BLOCK_K
from mm32.plan.plan import ACCUMULATE, Blocks, Launch, Plan, Step, Workspace, epilogue
from mm32.plan.sources import TILE_M

UNIT = TILE_M  # rows and columns of a block are multiples of it
# The least K of a span: twice the K from which on the emulated kernels' bound is that of a long sum (emulated.SHORT_K).
SHORTEST_SPAN = 512
MOST_STEPS = 1 << 17  # the most steps of a plan, which holds them as data; the host takes 10 to 20 us to launch a step
SPACING = 256  # bytes: every part of a workspace begins at a multiple of it
# How many cuts are scored exactly; the units of rows and columns that each of them is also widened by.
TRIED, MORE = (8, ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 2)))
# Numbers of rows of blocks, and of columns of blocks, that are tried.
COUNTS = (*range(1, 9), *(q << e for e in range(1, 16) for q in (5, 6, 7, 8)))

assert SHORTEST_SPAN >= emulated.SHORT_K


class Cut(NamedTuple):
    """How a product is cut: the matrices of the batch, rows and columns that a block has, and the number of spans of K."""

    matrices: int
    rows: int
    columns: int
    spans: int


class Chunk(NamedTuple):
    """Some matrices of a batch: their batch sizes, and the strides and first elements of A, B and C."""

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    first: tuple[int, int, int]
    aligned: tuple[bool, bool, bool]  # whether all chunks begin at multiples of 4 elements


class Kind(NamedTuple):
    """What is common to the products (or additions) of blocks that have the same plan.

    `adds`: whether it is an addition. `to_sums`: whether its result goes to the sums. `last`: whether it has the epilogue.
    """

    chunk: Chunk  # with 0 as first elements
    m: int
    n: int
    k: int
    adds: bool
    to_sums: bool
    last: bool


@dataclass(frozen=True)
class Choice:
    """A way for a kernel to stay within a limit. `seconds`: its estimate. `plan`: makes its plan."""

    seconds: float
    plan: Callable[[], Plan]


# ---------------------------------------------------------------------------------------------------------------------
# Where blocks begin


def spans_of(k: int, spans: int) -> list[tuple[int, int]]:
    """The start and length of each span of K. Spans are whole K-blocks, except at the end of the last one, and one span has at
    most one K-block more than another."""
    each, longer = divmod(-(-k // BLOCK_K), spans)
    found, begin = [], 0
    for span in range(spans):
        end = min(begin + (each + (span < longer)) * BLOCK_K, k)
        found.append((begin, end - begin))
        begin = end
    return found


def chunks_of(gemm: Gemm, matrices: int) -> Iterator[Chunk]:
    """Yield the batch in chunks of at most `matrices`. A chunk takes some indices of one dimension, all of the dimensions after
    it, and one of the dimensions before it."""
    of = (gemm.a.batch, gemm.b.batch, gemm.out.batch)
    if not gemm.batch:
        yield Chunk((), ((), (), ()), (0, 0, 0), (True, True, True))
        return
    rank = len(gemm.batch)
    cut = next(d for d in range(rank) if math.prod(gemm.batch[d + 1 :]) <= max(matrices, 1))
    several = matrices // math.prod(gemm.batch[cut + 1 :])
    several = -(-gemm.batch[cut] // -(-gemm.batch[cut] // several))  # chunks as even as whole matrices allow
    a, b, out = (all(s % 4 == 0 for s in strides[: cut + 1]) for strides in of)
    for before in _indices(gemm.batch[:cut]):
        for begin in range(0, gemm.batch[cut], several):
            sizes = (min(several, gemm.batch[cut] - begin), *gemm.batch[cut + 1 :])
            kept = [d for d, size in enumerate(sizes) if size > 1]
            first = tuple(sum(i * s for i, s in zip((*before, begin), strides, strict=False)) for strides in of)
            yield Chunk(
                tuple(sizes[d] for d in kept),
                tuple(tuple(strides[cut + d] for d in kept) for strides in of),
                first,  # type: ignore[arg-type]
                (a, b, out),
            )


def _indices(sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for number in range(math.prod(sizes)):
        index = []
        for size in reversed(sizes):
            number, place = divmod(number, size)
            index.append(place)
        yield tuple(reversed(index))


def _part(matrix: Matrix, rows: int, cols: int, batch: tuple[int, ...], aligned: bool) -> Matrix:
    return Matrix(matrix.row if rows > 1 else 0, matrix.col if cols > 1 else 0, batch, matrix.aligned and aligned)


def _sums(m: int, n: int, sizes: tuple[int, ...], along_m: bool) -> Matrix:
    """The layout of a block's sums: contiguous along N, or along M if C is; lines are padded to multiples of 4 elements."""
    line, lines = (m, n) if along_m else (n, m)
    pitch = -(-line // 4) * 4
    strides, step = [], pitch * lines
    for size in reversed(sizes):
        strides.append(step)
        step *= size
    row, col = (1, pitch) if along_m else (pitch, 1)
    return Matrix(row if m > 1 else 0, col if n > 1 else 0, tuple(reversed(strides)), True)


def _sums_bytes(cut: Cut, along_m: bool) -> int:
    line, lines = (cut.rows, cut.columns) if along_m else (cut.columns, cut.rows)
    return 0 if cut.spans == 1 else 4 * cut.matrices * lines * -(-line // 4) * 4


def _along_m(gemm: Gemm) -> bool:
    return gemm.out.row == 1 and gemm.out.col != 1


# ---------------------------------------------------------------------------------------------------------------------
# The best cut


class _Search:
    """The search for cuts of one product, for one kernel on one card, with a workspace of at most `limit` bytes."""

    def __init__(self, kernel: str, work: Work, card: Card, limit: int) -> None:
        self.kernel, self.work, self.gemm, self.card, self.limit = kernel, work, work.gemm, card, limit
        self.model = cost.of(card)
        self.along_m = _along_m(self.gemm)
        self._chunks_of: dict[int, Counter[Chunk]] = {}
        self._assembled: dict[tuple[Gemm, emulated.Candidate], Plan] = {}

    def product(self, gemm: Gemm, room: int) -> tuple[float, Plan] | None:
        """The estimate and the plan of the fastest way to compute a product with a workspace of at most `room` bytes; None if
        there is none."""
        work = Work(gemm)
        for candidate in sorted(emulated.candidates(self.kernel, work, self.card), key=itemgetter(0)):
            if candidate.parts > 1 and 4 * candidate.parts * work.results > room:
                continue
            at = gemm, candidate
            if (plan := self._assembled.get(at)) is None:
                plan = self._assembled[at] = emulated.assemble(candidate, gemm, self.card)
            assert plan.workspace is not None
            if plan.workspace.bytes <= room:
                return candidate.seconds, plan
        return None

    @functools.cached_property
    def _wave(self) -> float:
        """About how many seconds one wave of tiles takes over the whole of K."""
        products = {"tf32": 1, "bf16x6": 6}.get(self.gemm.precision, 3)
        rate = (self.card.mma_sync if self.kernel == "mma" else self.card.fp16) / products
        return 2.0 * TILE_M * TILE_M * self.gemm.k * self.card.sms / rate

    def _bytes(self, cut: Cut, k: int) -> int:
        """The bytes of workspace of a block's product over `k` of K, where no thread blocks share K, with the lower tier if there
        may be one."""
        chunk = replace(
            self.gemm,
            m=min(cut.rows, self.gemm.m),
            n=min(cut.columns, self.gemm.n),
            k=k,
            batch=(cut.matrices,) if cut.matrices > 1 else (),
        )
        return emulated.unshared_bytes(chunk, self.kernel)

    def _with_spans(self, cut: Cut) -> Cut | None:
        """The cut with about as few spans of K as fit; None if no number of spans fits."""
        k = self.gemm.k
        if self._bytes(cut, k) <= self.limit:
            return cut
        cut = cut._replace(spans=2)
        one, nine = self._bytes(cut, BLOCK_K), self._bytes(cut, 9 * BLOCK_K)
        each = (nine - one) / 8
        units = int((self.limit - _sums_bytes(cut, self.along_m) - one) / each)
        if units < 1:
            return None
        k_blocks = -(-k // BLOCK_K)
        spans = max(-(-k_blocks // units), 2)
        return cut._replace(spans=spans) if k // spans >= SHORTEST_SPAN + BLOCK_K else None

    def _rough(self, cut: Cut) -> float:
        """A rough estimate of what a cut costs besides the products, in order to leave most cuts out."""
        gemm, model = self.gemm, self.model
        rows, columns = -(-gemm.m // cut.rows), -(-gemm.n // cut.columns)
        of_a, of_b = packing.operands(gemm).packed_bytes
        blocks = rows * columns * -(-gemm.batches // cut.matrices)
        added = (cut.spans - 1) * (12.0 * self.work.results / model.store + blocks * model.launch)
        waste = blocks * (cut.spans * model.emulated_fixed + 0.5 * self._wave)
        return (columns * of_a + rows * of_b) / model.pack + added + waste

    def cuts(self) -> list[Cut]:
        """Cuts that may be good, the best ones first."""
        gemm = self.gemm
        whole = Cut(1, _units(gemm.m), _units(gemm.n), 1)
        if gemm.batches > 1 and self._bytes(whole, gemm.k) <= self.limit:
            return self._of_batch(whole)
        found: dict[Cut, float] = {}
        for rows in _sizes(gemm.m):
            for columns in _sizes(gemm.n):
                cut = self._with_spans(Cut(1, rows, columns, 1))
                if cut is not None:
                    found[cut] = self._rough(cut)
        return sorted(found, key=found.__getitem__)

    def _of_batch(self, whole: Cut) -> list[Cut]:
        """Cuts with about as many matrices at a time as fit, and with fewer."""
        most = self.gemm.batches
        while most > 1 and self._bytes(whole._replace(matrices=most), self.gemm.k) > self.limit:
            most = min(most - 1, max(int(most * 0.9), 1))
        return [whole._replace(matrices=each) for each in dict.fromkeys((most, max(most // 2, 1), 1))]

    def seconds(self, cut: Cut) -> float | None:
        """The estimate of a cut: of its products and additions, by kind and count. None if a product does not fit, or if there
        are too many steps."""
        g = self.gemm
        blocks = -(-g.batches // cut.matrices) * -(-g.m // cut.rows) * -(-g.n // cut.columns)
        if blocks * (2 * cut.spans - 1) > MOST_STEPS:  # before they are counted one by one: a batch may have millions
            return None
        kinds = self._kinds(cut)
        if sum(kinds.values()) > MOST_STEPS:
            return None
        total = 0.0
        for kind, count in kinds.items():
            found = self._planned(kind, cut)
            if found is None:
                return None
            total += count * found[0]
        return total

    def _kinds(self, cut: Cut) -> Counter[Kind]:
        """The different products and additions of a cut, and how many there are of each."""
        g, counted = self.gemm, Counter[Kind]()
        depths = Counter(k for _, k in spans_of(g.k, cut.spans)[1:])
        first = spans_of(g.k, cut.spans)[0][1]
        for (chunk, chunks), (m, rows), (n, columns) in itertools.product(
            self._chunks(cut.matrices).items(), _lengths(g.m, cut.rows), _lengths(g.n, cut.columns)
        ):
            count = chunks * rows * columns
            counted[Kind(chunk, m, n, first, False, False, cut.spans == 1)] += count
            for k, spans in depths.items():
                counted[Kind(chunk, m, n, k, False, True, False)] += count * spans
            if cut.spans > 1:
                counted[Kind(chunk, m, n, 0, True, False, True)] += count
            if cut.spans > 2:
                counted[Kind(chunk, m, n, 0, True, False, False)] += count * (cut.spans - 2)
        return counted

    def _chunks(self, matrices: int) -> Counter[Chunk]:
        """How many chunks of each form the batch has, with 0 as their first elements."""
        if matrices not in self._chunks_of:
            found = (chunk._replace(first=(0, 0, 0)) for chunk in chunks_of(self.gemm, matrices))
            self._chunks_of[matrices] = Counter(found)
        return self._chunks_of[matrices]

    def _planned(self, kind: Kind, cut: Cut) -> tuple[float, Plan] | None:
        gemm = self._asked(kind)
        if kind.adds:
            return self._addition(gemm)
        return self.product(gemm, self.limit - SPACING - _sums_bytes(cut, self.along_m))

    def plan(self, cut: Cut) -> Plan:
        """The plan of a cut that fits."""
        g, numbers = self.gemm, {kind: number for number, kind in enumerate(self._kinds(cut))}
        parts = [found[1] for kind in numbers if (found := self._planned(kind, cut)) is not None]
        steps: list[Step] = []
        spans = spans_of(g.k, cut.spans)
        for chunk in chunks_of(g, cut.matrices):
            form = chunk._replace(first=(0, 0, 0))
            for m0, n0 in itertools.product(range(0, g.m, cut.rows), range(0, g.n, cut.columns)):
                m, n = min(cut.rows, g.m - m0), min(cut.columns, g.n - n0)
                at_c, at_bias = chunk.first[2] + m0 * g.out.row + n0 * g.out.col, n0 * (g.bias or 0)
                for span, (k0, k) in enumerate(spans):
                    last, to_sums = span == cut.spans - 1, span > 0
                    number = numbers[Kind(form, m, n, k, False, to_sums, last and not to_sums)]
                    at_a = chunk.first[0] + m0 * g.a.row + k0 * g.a.col
                    at_b = chunk.first[1] + k0 * g.b.row + n0 * g.b.col
                    steps.append(Step(number, at_a, at_b, 0 if to_sums else at_c, at_bias, writes_sums=to_sums))
                    if to_sums:
                        number = numbers[Kind(form, m, n, 0, True, False, last)]
                        steps.append(Step(number, 0, 0, at_c, at_bias, reads_sums=True))
        used = max(part.workspace.bytes for part in parts if part.workspace is not None)
        none, sums = (0, 0), -(-used // SPACING) * SPACING
        space = Workspace(sums + _sums_bytes(cut, self.along_m), none, none, none, 0, sums, (1, 1), 1, none)
        matrices = max(math.prod(chunk.sizes) for chunk in self._chunks(cut.matrices))
        blocks = Blocks(self.limit, matrices, cut.rows, cut.columns, cut.spans, tuple(parts), tuple(steps))
        return Plan(g, self.card, self.kernel, (), workspace=space, blocks=blocks)

    def _asked(self, kind: Kind) -> Gemm:
        """A product of a block, or the addition of its sums, as a problem of its own."""
        g, chunk, m, n = self.gemm, kind.chunk, kind.m, kind.n
        a_batch, b_batch, c_batch = chunk.strides
        out = _part(g.out, m, n, c_batch, chunk.aligned[2])
        sums = _sums(m, n, chunk.sizes, self.along_m)
        bias = None if g.bias is None or not kind.last else g.bias if n > 1 else 0
        return Gemm(
            m, n, kind.k, chunk.sizes,
            sums if kind.adds else _part(g.a, m, kind.k, a_batch, chunk.aligned[0]),
            replace(sums, row=0, col=0) if kind.adds else _part(g.b, kind.k, n, b_batch, chunk.aligned[1]),
            sums if kind.to_sums else out,
            bias, g.activation if kind.last else None, g.precision,
        )  # fmt: skip

    def _addition(self, gemm: Gemm) -> tuple[float, Plan]:
        elements = gemm.batches * gemm.m * gemm.n
        blocks = max(min(-(-elements // 1024), self.card.sms * 8), 1)
        launch = Launch(ACCUMULATE, "mm32_accumulate", epilogue(gemm), 256, 0, blocks=blocks)
        return self.model.accumulate(Work(gemm)), Plan(gemm, self.card, self.kernel, (launch,), "adding up sums")


def _lengths(size: int, each: int) -> list[tuple[int, int]]:
    """The lengths that blocks of `each` rows (or columns) have, and how many blocks have each length."""
    whole, rest = divmod(size, each)
    return [(length, count) for length, count in ((each, whole), (rest, int(rest > 0))) if count]


def _units(size: int) -> int:
    return -(-size // UNIT) * UNIT


def _sizes(size: int) -> list[int]:
    """The rows (or columns) that a block may have: whole units, for each number of blocks in COUNTS."""
    units = -(-size // UNIT)
    return list(dict.fromkeys(-(-units // count) * UNIT for count in COUNTS if count <= units))


def _wider(cut: Cut, more: tuple[int, int]) -> Cut:
    return cut._replace(rows=cut.rows + more[0] * UNIT, columns=cut.columns + more[1] * UNIT)


def best(kernel: str, work: Work, card: Card, limit: int) -> Choice | None:
    """The way that is estimated to be the fastest for an emulated kernel to compute a product that is not empty, with a workspace
    of at most `limit` bytes: all at once if a candidate fits, or in blocks. None if nothing fits."""
    search = _Search(kernel, work, card, limit)
    whole = search.product(work.gemm, limit)
    made = []
    if whole is not None:
        at_once = whole[1]
        made.append(Choice(whole[0], lambda: at_once))
    seen: set[Cut] = set()
    tried = 0
    for cut in search.cuts():
        found = False
        for more in MORE if cut.matrices == 1 else MORE[:1]:
            wider = search._with_spans(_wider(cut, more)._replace(spans=1)) if more != (0, 0) else cut
            if wider is None or wider in seen:
                continue
            seen.add(wider)
            seconds = search.seconds(wider)
            if seconds is not None:
                made.append(Choice(seconds, functools.partial(search.plan, wider)))
                found = True
        tried += found
        if tried == TRIED or len(seen) > 4 * TRIED * len(MORE):
            break
    return min(made, key=lambda choice: choice.seconds, default=None)
