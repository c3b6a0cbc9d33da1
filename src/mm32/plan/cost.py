"""All estimates of times: work divided by a fitted share of a card's rate, plus launches. torch's own product is here too.

shares.py has the shares. Estimates are good enough to order the kernels, but they do not predict a run to a per cent. `of(card)`
gives a card's `Model`; all estimates are its methods, in seconds.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from mm32.gemm import Gemm
from mm32.plan.card import Card
from mm32.plan.shares import SHARES
from mm32.plan.sources import PACKERS, SAMPLED_BYTES, STATS_BYTES

# A K that is long for torch's products of a matrix and a vector: from there on its time counts in full.
LONG_VECTOR = 2800
# Rows of a matrix along rows for which torch takes longer (H200, torch 2.11): 879, 1024, 1224 and 1520 rows do, not 704 and 1576.
SLOW_VECTORS = 769, 1536
# Numbers of blocks that share K, in mm32's split-K and in torch's.
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)


class Work:
    """The work of a product, counted once for all estimates of it. `results`: elements of C. `traffic`: bytes that must move,
    each operand once and the result once."""

    __slots__ = ("batches", "gemm", "k", "m", "n", "results", "traffic")

    def __init__(self, gemm: Gemm) -> None:
        self.gemm, self.m, self.n, self.k, self.batches = gemm, gemm.m, gemm.n, gemm.k, gemm.batches
        self.results = self.batches * self.m * self.n
        self.traffic = 4.0 * self.batches * (self.m * self.k + self.k * self.n + self.m * self.n)


class Tile(Protocol):
    """A block tile of a kernel. `label`: the name that its shares have."""

    @property
    def label(self) -> str: ...
    @property
    def m(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...


class DirectTile(Tile, Protocol):
    """A tile of direct. `kept`: whether B stays in shared memory for the tiles below one another."""

    @property
    def kept(self) -> bool: ...
    def block_k(self, k: int) -> int: ...


class BlockTile(Tile, Protocol):
    """A tile of simt. `blocks`: how many blocks fit on a multiprocessor."""

    @property
    def blocks(self) -> int: ...


class NarrowTile(Protocol):
    """A form of narrow.cu: see plan/fma.py, NarrowForm."""

    @property
    def label(self) -> str: ...
    @property
    def along_k(self) -> bool: ...
    @property
    def blocks(self) -> int: ...
    @property
    def tile(self) -> int: ...
    @property
    def piece(self) -> int: ...


class EmulatedTile(Tile, Protocol):
    """A tile of an emulated kernel. `products`: of each pair of elements. `inline`: whether it packs inline. `beside`: whether a
    block of mm32_pack fits beside it on a multiprocessor."""

    @property
    def kernel(self) -> str: ...
    @property
    def products(self) -> int: ...
    @property
    def inline(self) -> bool: ...
    @property
    def beside(self) -> bool: ...


class Packing(NamedTuple):
    """What packing has to do for a product. `rows`: of A and B together. `units`: of mm32_pack. `reads`: how operands are read
    ("aligned"; "shifted" or "scattered" if one operand is). `inline_scattered`: whether an operand that is packed inline is read
    4 bytes at a time."""

    rows: int
    units: int
    reads: str
    inline_scattered: bool


class Model:
    """The estimates for one card, in seconds."""

    def __init__(self, card: Card, shares: Mapping[str, float]) -> None:
        self.card, self.shares, self.sms, self.launch = card, shares, card.sms, card.launch
        self._steps: dict[str, tuple[float, ...]] = {}
        get = shares.__getitem__

        def memory(name: str) -> float:
            return card.memory * get(name)

        def launches(name: str) -> float:
            return card.launch * get(name + ".launches")

        self.store = memory("store")
        self.simt_memory, self.simt_exposed = memory("simt.memory"), get("simt.exposed")
        self.simt_fixed, self.simt_tile = launches("simt") + card.launch, launches("simt.tile")
        self.unaligned = 1.0 / get("simt.unaligned")
        self.reduce, self.reduce_part, self.fixup = launches("reduce"), launches("reduce.part"), launches("fixup")
        self.narrow_memory = memory("narrow.memory")
        self.narrow_fixed, self.narrow_cluster = launches("narrow"), launches("narrow.cluster")
        self.narrow_host = launches("narrow.host")
        self.narrow_begin = {True: launches("narrow.k"), False: launches("narrow.rows")}
        self.pack, self.pack_beside, self.pack_ahead = memory("pack"), memory("pack.beside"), memory("pack.ahead")
        self.pack_exposed, self.pack_worth = get("pack.exposed"), get("pack.worth")
        self.scale_row = SAMPLED_BYTES / memory("scale")
        self.accept_row = STATS_BYTES / (memory("accept") / card.sms)
        self.inline, self.inline_slow = memory("inline"), 1.0 / get("inline.slow")
        self.unit = {
            "aligned": launches("pack.unit"),
            "shifted": launches("pack.unit.shifted"),
            "scattered": launches("pack.unit.scattered"),
        }
        self.beside, self.emulated_fixed = launches("pack.beside"), launches("emulated")
        self.lower_tier = launches("lower")
        self.torch_launch, self.torch_split_k = launches("torch"), launches("torch.split_k")
        self.torch_tile = launches("torch.tile")
        self.torch_memory = memory("torch.memory")

    # -----------------------------------------------------------------------------------------------------------------
    # The kernels of fp32 multiply-adds

    def naive(self, work: Work, coalesced: bool) -> float:
        s, card = self.shares, self.card
        busy = min(1.0, work.results / (card.sms * 1024))
        rate = card.fp32 * s["naive.fp32" if coalesced else "naive.fp32.scattered"] * busy
        multiply = 2.0 * work.results * work.k / max(rate, 1.0)
        stores = 4.0 * work.results / (card.memory * s["naive.store"])
        reads = (work.traffic - 4.0 * work.results) / (card.memory * s["naive.read"])
        return max(multiply, reads) + stores + (s["naive.launches"] + 1.0) * self.launch

    def dot(self, work: Work, sectors: int) -> float:
        """The estimate for dot. `sectors`: the 32-byte sectors that hold 8 elements of A and 8 of B, as a warp reads them."""
        s, card = self.shares, self.card
        elements = max(1, work.results)
        waves = -(-elements // (card.sms * 8))
        busy = min(1.0, elements / (card.sms * 4))
        reads = elements * work.k * 4.0 * sectors / (card.memory * s["dot.read"] * busy)
        return max(waves * s["dot.wave.launches"] * self.launch, reads) + (s["dot.launches"] + 1.0) * self.launch

    def tiled(self, work: Work) -> float:
        s, card = self.shares, self.card
        tiles = work.batches * -(-work.m // 32) * -(-work.n // 32)
        waves = -(-tiles // (card.sms * 2))
        step = 2 * 32 * 32 * 2 / (card.fp32 * s["tiled.fp32"] / card.sms)  # of K, for the two tiles of a multiprocessor
        return waves * (work.k * step + s["tiled.wave.launches"] * self.launch) + self.launch

    def _step(self, tile: BlockTile) -> tuple[float, ...]:
        """The seconds that one step of K takes for a tile, with 1, 2, ... blocks on a multiprocessor."""
        found = self._steps.get(tile.label)
        if found is None:
            rate = self.card.fp32 / self.sms
            shares = (self.shares[f"{tile.label}.{i}"] for i in range(1, tile.blocks + 1))
            found = self._steps[tile.label] = tuple(2.0 * tile.m * tile.n / (rate * share) for share in shares)
        return found

    def simt(self, work: Work, tile: BlockTile, tiles: int, parts: int, unaligned: bool) -> float:
        """The estimate for simt with `tiles` tiles of C, where `parts` blocks share K."""
        each = -(-tiles * parts // self.sms)
        step = self._step(tile)[min(max(each, 1), tile.blocks) - 1]
        if unaligned:
            step *= self.unaligned
        stream, exposed = self._simt_stream(work)
        depth = max(-(-work.k // (tile.k * parts)), 1) * tile.k
        around = self.simt_tile * each if tile.blocks == 1 else 0.0
        busy = max(each * depth * step + around + exposed, stream, self._simt_store(work, parts))
        return busy + self.add_up(work, parts, self.simt_memory) + self.simt_fixed

    def _simt_stream(self, work: Work) -> tuple[float, float]:
        """The seconds that reading the operands and storing the result take, and those that are not hidden behind the
        multiply-adds."""
        stores = 4.0 * work.results / (self.card.memory * self.shares["simt.store"])
        reads = (work.traffic - 4.0 * work.results) / self.simt_memory
        return reads + stores, self.simt_exposed * reads + self.shares["simt.store.exposed"] * stores

    def _simt_store(self, work: Work, parts: int) -> float:
        """The seconds of stores if C does not take 16 bytes at a time: lanes then store every fourth element at once. Else 0."""
        if parts > 1 or work.gemm.out.vectorizable("col"):
            return 0.0
        return 4.0 * work.results / (self.card.memory * self.shares["simt.store.unaligned"])

    def stream_k(self, work: Work, tile: BlockTile, tiles: int, resident: int, unaligned: bool) -> float:
        """The estimate for simt with stream-K: as if all multiprocessors, each with `resident` blocks, had the same work, to the
        step of K."""
        blocks = self.sms * resident
        step = self._step(tile)[resident - 1] * (self.unaligned if unaligned else 1.0)
        stream, exposed = self._simt_stream(work)
        depth = -(-work.k // tile.k) * tile.k
        around = self.simt_tile * (tiles / blocks + 2) if tile.blocks == 1 else 0.0
        partial_tiles = 8.0 * (blocks + tiles % blocks) * tile.m * tile.n / self.simt_memory
        busy = max(tiles / self.sms * depth * step + around + exposed, stream, self._simt_store(work, 1))
        return busy + partial_tiles + self.fixup + self.simt_fixed

    def add_up(self, work: Work, parts: int, rate: float) -> float:
        """The seconds to store `parts` partial sums of each result and add them up, at `rate` bytes/s; 0 if K is not shared."""
        if parts == 1:
            return 0.0
        return self.reduce + self.reduce_part * parts + 8.0 * parts * work.results / rate

    def narrow(
        self, work: Work, form: NarrowTile, tiles: int, parts: int, cluster: bool, vector: bool, sectors: int
    ) -> float:
        """The estimate for narrow.cu: a block's own rate, which its loads under way allow, and then the card's memory, which all
        blocks share. `tiles`: the tiles of the wide operand, one for a block, or for `parts` blocks that share K, as a `cluster`
        or by partial sums. `vector`: whether it is loaded 16 bytes at a time. `sectors`: 32-byte sectors that are read for each
        32 bytes of it."""
        s, room = self.shares, self.sms * form.blocks
        if cluster and parts > 2:
            room = max(1, room * 7 // 8 // parts) * parts  # larger clusters leave multiprocessors idle
        turns = max(1.0, tiles * parts / room)
        if turns > 1.0:
            turns += s["narrow.tail"] * (math.ceil(turns) - turns)
        pieces = -(-work.k // form.piece)
        elements = form.tile * min(work.k, -(-pieces // parts) * form.piece)
        rate = self.card.memory / self.sms * s[form.label]
        if not vector:
            rate *= s["narrow.k.apart" if form.along_k else "narrow.rows.apart"]
        if parts == 1:
            around = 0.0
        elif cluster:
            around = self.narrow_cluster
        else:
            around = self.add_up(work, parts, self.narrow_memory) + self.narrow_host
        blocks = turns * (self.narrow_begin[form.along_k] + 4.0 * elements * sectors / rate)
        return self.narrow_fixed + blocks + work.traffic * sectors / self.narrow_memory + around

    # -----------------------------------------------------------------------------------------------------------------
    # The emulated kernels

    def _block_step(self, tile: EmulatedTile) -> tuple[float, ...]:
        """The seconds that a multiprocessor takes for 64 of K of a tile, and for beginning and storing the tile."""
        found = self._steps.get(tile.label)
        if found is None:
            rate = (self.card.mma_sync if tile.kernel == "mma" else self.card.fp16) / self.sms
            flops = 2.0 * tile.m * tile.n * tile.k * tile.products
            step = flops / (rate * self.shares[tile.label])
            found = self._steps[tile.label] = (step, self.launch * self.shares[tile.label + ".launches"])
        return found

    def reduction(self, work: Work, parts: int) -> float:
        """The seconds to add up `parts` partial sums of each result; 0 if K is not shared."""
        return self.reduce + 4.0 * work.results * (parts + 1) / self.store if parts > 1 else 0.0

    def accumulate(self, work: Work) -> float:
        """The seconds to add a block's sums to C: two reads and a store of each result."""
        lies = work.gemm.out.vectorizable("col") or work.gemm.out.vectorizable("row")
        apart = 1.0 if lies else 1.0 / self.shares["emulated.store.unaligned"]
        return self.launch + 4.0 * (1.0 + 2.0 * apart) * work.results / self.store

    def emulated(
        self, work: Work, packing: Packing, tile: EmulatedTile, tiles: int, parts: int, packed: float
    ) -> tuple[float, bool]:
        """The estimate, and whether to pack beside the multiply. `packed`: the bytes that packing has to move."""
        waves = -(-tiles * parts // self.sms)
        steps = -(-work.k // tile.k)
        step, around = self._block_step(tile)
        if tile.inline and (work.batches > 1 or packing.inline_scattered):
            step *= self.inline_slow
        multiply = waves * (-(-steps // parts) * step + around)
        multiply += 4.0 * work.results * parts / self.store / waves  # only the last wave's stores are not hidden
        stores = 4.0 * work.results * parts / (self.card.memory * self.shares["emulated.store"])
        multiply = max(multiply, stores, self._unaligned_store(work, "emulated"))
        rest = self.emulated_fixed + self.scale_row * packing.rows + self.reduction(work, parts)
        if tile.inline:
            return max(multiply, work.traffic / self.inline) + rest, False
        multiply = max(multiply, self.accept_row * packing.rows)
        waves_of_units = -(-packing.units // (PACKERS * self.sms)) if packed else 0
        alone = packed / self.pack
        in_turn = max(alone, waves_of_units * self.unit[packing.reads]) + multiply
        if not tile.beside or work.batches > 1 or alone <= self.pack_worth * multiply:
            return in_turn + rest, False
        ahead = packed / self.pack_ahead
        together = max(multiply + self.pack_exposed * packed / self.pack_beside, ahead) + self.beside
        return min(together, in_turn) + rest, together < in_turn

    def _unaligned_store(self, work: Work, kernel: str) -> float:
        """The least seconds that the stores of C take if a lane stores 4 bytes at a time; else 0."""
        if work.gemm.out.vectorizable("col"):
            return 0.0
        return 4.0 * work.results / (self.card.memory * self.shares[kernel + ".store.unaligned"])

    def direct(self, work: Work, tile: DirectTile, tiles: int, cluster: int, copies: str) -> float:
        """The estimate for direct, bf16x6 in one launch: `tiles` tiles, where `cluster` blocks share the K of each.

        `copies`: how operands are copied, "aligned", "shifted" or "scattered".
        """
        s, card = self.shares, self.card
        flops = 12.0 * tile.m * tile.n * tile.block_k(work.k)  # of a K-block, with six products
        step = flops / (card.fp16 / self.sms * s[tile.label])
        if copies != "aligned":
            step /= s[f"direct.{copies}"]
        waves = -(-tiles // (self.sms // cluster))
        around = s[tile.label + ".launches"]
        if cluster > 1:
            size = ".cluster.8.launches" if cluster == 8 else ".cluster.launches"
            around += s.get(tile.label + size, s["direct" + size])
        multiply = waves * (-(-work.k // (tile.k * cluster)) * step + around * self.launch)
        from_l2 = 4.0 * tiles * (tile.m + tile.n) * work.k / (card.memory * s["direct.l2"])
        stores = self._unaligned_store(work, "direct")
        if not tile.kept:  # with a kept B, one group of warps stores while the other multiplies
            multiply += s["direct.store.exposed"] * stores
        memory = s["direct.memory.kept" if tile.kept else "direct.memory"]
        busy = max(multiply, work.traffic / (card.memory * memory), from_l2, stores)
        return busy + s["direct.launches"] * self.launch

    # -----------------------------------------------------------------------------------------------------------------
    # torch's own product (cuBLAS)

    def torch(self, work: Work, precision: str) -> float:
        """The estimate for torch's product in precision "fp32" or "tf32": the longer of an SM's arithmetic and the card's memory,
        by tiles of 128 or 64, with K split where tiles are few. Its kernels for thin products and vectors are bound by memory."""
        tf32, fastest = precision == "tf32", self._torch_thin(work)
        for tile in (128, 64):
            for parts in PARTS:
                if parts > max(work.k, 1) or self._torch_add_up(work, parts) > fastest:
                    break  # more parts take longer to add up than another way takes
                if parts > 1 and work.batches > 1:
                    break  # 4 x (24 x 9160 x 24) took 344 us, by tiles 266
                fastest = min(fastest, self._torch_tile(work, tile, parts, tf32))
        return fastest

    def _torch_add_up(self, work: Work, parts: int) -> float:
        if parts == 1:
            return 0.0
        return self.torch_split_k + 4.0 * work.results * (parts + 1) / self.torch_memory

    def _torch_tile(self, work: Work, tile: int, parts: int, tf32: bool) -> float:
        s, card = self.shares, self.card
        tiles = work.batches * -(-work.m // tile) * -(-work.n // tile) * parts
        rate = (card.tf32 * s["torch.tf32"] if tf32 else card.fp32 * s["torch.fp32"]) / card.sms
        if tile == 64:
            rate *= s["torch.64"]
        if tiles <= card.sms and not tf32:
            rate *= s["torch.alone"]
        if 16 < min(work.m, work.n) <= 32:
            rate /= s["torch.32"]
        memory, result = self.torch_memory, 4.0 * work.results
        multiply = -(-tiles // card.sms) * -(-work.k // parts) * 2.0 * tile * tile / rate
        behind = parts > 1 and not tf32
        stream = work.traffic / (card.memory * s["torch.split_k.memory"] if behind else memory)
        return (
            max(multiply + s["torch.exposed"] * result / memory, stream)
            + self._torch_add_up(work, parts)
            + (self.torch_launch if tf32 else self.torch_tile)
        )

    def _torch_thin(self, work: Work) -> float:
        s, gemm, traffic, thin = self.shares, work.gemm, work.traffic, min(work.m, work.n)
        memory = self.card.memory
        if 1 < thin <= 16:
            return traffic / (memory * s["torch.thin"]) + s["torch.thin.launches"] * self.launch + self.torch_launch
        if thin != 1:
            return float("inf")
        along_k = gemm.a.col == 1 if gemm.n == 1 else gemm.b.row == 1  # whether the matrix does, not the vector
        seconds = traffic / (memory * s["torch.vector"]) + s["torch.vector.launches"] * self.launch
        chain = min(1.0, work.k / LONG_VECTOR) * self.launch
        if not along_k:
            rows = max(work.m, work.n)
            slow = s["torch.vector.slow.launches"] * self.launch if SLOW_VECTORS[0] <= rows <= SLOW_VECTORS[1] else 0.0
            return seconds + s["torch.vector.rows.launches"] * chain + slow
        busy = min(1.0, traffic / (memory * s["torch.vector.busy.launches"] * self.launch))
        return seconds + s["torch.vector.k.launches"] * chain + s["torch.vector.ramp.launches"] * self.launch * busy

    def passes(self, work: Work, count: int, operands: int) -> float:
        """The estimate for `count` element-wise kernels over the result, each of which moves `operands` arrays of its size."""
        return count * (self.launch + 4.0 * operands * work.results / self.store)


# ---------------------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def of(card: Card) -> Model:
    """The `Model` of a card, by the values in SHARES."""
    return Model(card, SHARES)


@contextlib.contextmanager
def shares(changes: Mapping[str, float]) -> Iterator[None]:
    """Make plans with these values in SHARES, inside a with block: for fitting them, and for tests that force a choice.

    Raises KeyError for a name that SHARES does not have. mm32's caches keep plans, and must be cleared by the caller.
    """
    before = {name: SHARES[name] for name in changes}
    try:
        SHARES.update(changes)
        of.cache_clear()
        yield
    finally:
        SHARES.update(before)
        of.cache_clear()
