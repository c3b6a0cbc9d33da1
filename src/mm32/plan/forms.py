"""The forms of the kernels that are compiled and checked without a card: the axes of each source's constants, as data.

An axis is one choice: some constants and the values that they have together. A source has axes, and groups of axes that are
covered: every combination of a group's values is in at least one form. The list of forms follows from that (`forms`), by one
greedy algorithm for all sources. The constants of a plan's launch are always on the axes, but not every launch has a form of
its own.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mm32 import activations
from mm32.plan import direct, emulated, fma, packing
from mm32.plan.card import H200
from mm32.plan.plan import ACCUMULATE, NO_EPILOGUE, Constants

Form = dict[str, int]


@dataclass(frozen=True)
class Axis:
    """One choice: each value sets the same constants."""

    values: tuple[Constants, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.values[0])

    def only(self, *values: Constants) -> Axis:
        """The axis with some of its values, for a group that covers only these."""
        assert all(value in self.values for value in values)
        return Axis(values)


def _axis(name: str, *values: int) -> Axis:
    return Axis(tuple(((name, value),) for value in values))


@dataclass(frozen=True)
class Source:
    """A source of kernels.

    `kernel`: the kernel that it is listed with. `source`: its file. `order`: the names of its constants, in their order.
    `axes`: its axes. `cover`: the groups of axes that are covered. `threads`: the threads of a form's block. `allowed`: whether
    a form can be in a plan, where axes depend on each other.
    """

    kernel: str
    source: str
    order: tuple[str, ...]
    axes: tuple[Axis, ...]
    cover: tuple[tuple[Axis, ...], ...]
    threads: Callable[[Form], int]
    allowed: Callable[[Form], bool] = lambda form: True

    def constants(self, form: Form) -> Constants:
        return tuple((name, form[name]) for name in self.order)

    def has(self, constants: Constants) -> bool:
        """Return whether these constants are on the axes and in the order that the source has them in."""
        form = dict(constants)
        if tuple(name for name, _ in constants) != self.order or not self.allowed(form):
            return False
        return all(tuple((name, form[name]) for name in axis.names) in axis.values for axis in self.axes)


def covering(source: Source) -> list[Form]:
    """The forms that cover the source's groups: for each combination not yet covered, the allowed form that covers most of what
    is left, the first of equals."""
    options = [dict(itertools.chain(*values)) for values in itertools.product(*(axis.values for axis in source.axes))]
    options = [form for form in options if source.allowed(form)]
    wanted: dict[tuple[int, Constants], list[int]] = {}  # (group, combination) -> the forms that have it
    of_form: list[list[tuple[int, Constants]]] = [[] for _ in options]
    for number, group in enumerate(source.cover):
        names = [name for axis in group for name in axis.names]
        combinations = {
            tuple(itertools.chain(*values)) for values in itertools.product(*(axis.values for axis in group))
        }
        for index, form in enumerate(options):
            combination = tuple((name, form[name]) for name in names)
            if combination in combinations:
                wanted.setdefault((number, combination), []).append(index)
                of_form[index].append((number, combination))
    chosen: list[Form] = []
    while wanted:
        index = max(next(iter(wanted.values())), key=lambda i: sum(key in wanted for key in of_form[i]))
        chosen.append(options[index])
        for key in of_form[index]:
            wanted.pop(key, None)
    return chosen


@functools.cache
def _listed() -> tuple[tuple[str, str, Constants, int], ...]:
    return tuple(
        (source.kernel, source.source, source.constants(form), source.threads(form))
        for source in SOURCES
        for form in covering(source)
    )


def forms() -> Iterator[tuple[str, str, Constants, int]]:
    """The forms, as (kernel, source, constants, threads of a block)."""
    return iter(_listed())


# ---------------------------------------------------------------------------------------------------------------------
# The axes

# An epilogue does not change the main loop: so forms have none or the heaviest, and each source has every activation once.
HEAVIEST: Constants = (("BIAS", 1), ("ACTIVATION", activations.number("gelu_tanh")))
EPILOGUE = Axis(
    (
        NO_EPILOGUE,
        HEAVIEST,
        *(
            (("BIAS", bias), ("ACTIVATION", number))
            for number in range(1 + len(activations.ACTIVATIONS))
            for bias in (0, 1)
            if (("BIAS", bias), ("ACTIVATION", number)) not in (NO_EPILOGUE, HEAVIEST)
        ),
    )
)
NONE, ENDS = EPILOGUE.only(NO_EPILOGUE), EPILOGUE.only(NO_EPILOGUE, HEAVIEST)
EACH = EPILOGUE.only(*((("BIAS", a.number % 2), ("ACTIVATION", a.number)) for a in activations.ACTIVATIONS))
A_LOAD, B_LOAD = _axis("A_LOAD", 0, 1, 2, 3), _axis("B_LOAD", 0, 1, 2, 3)
A_PACK, B_PACK = (_axis(f"{side}_LOAD", 0, 1, 2, 4, 5, packing.PREPACKED) for side in "AB")
C_VECTOR, SPLIT_K = _axis("C_VECTOR", 0, 1), _axis("SPLIT_K", 0, 1)
SHARING = Axis(tuple((("SPLIT_K", s), ("STREAM_K", t)) for s, t in ((0, 0), (1, 0), (0, 1))))
NOT_SHARED, STREAM_K = SHARING.only(SHARING.values[0]), SHARING.only(SHARING.values[2])
SIMT_TILE = Axis(tuple(fma.tile_constants(tile) for tile in (*fma.SIMT_TILES, fma.ACCURATE_TILE)))
ACCURATE = SIMT_TILE.only(fma.tile_constants(fma.ACCURATE_TILE))
NARROW_FORM = Axis(tuple(fma.form_constants(form) for form in fma.NARROW_FORMS))
NARROW_SHARING = _axis("SPLIT_K", 0, 1, 2)
SIDE, LOAD = _axis("SIDE", 0, 1), _axis("LOAD", 0, 1, 2, 3)
PRODUCTS, SIX = _axis("PRODUCTS", 3, 1), _axis("PRODUCTS", 6)
UNGUARDED, GUARDED = _axis("GUARDED", 0), _axis("GUARDED", 1)
# The only tier; the first of two; the lower one.
TIERS = Axis(tuple((("GUARDED", g), ("LOWER_TIER", t)) for g, t in ((0, 0), (0, 1), (1, 0))))
# What decides the tier: tensorcore's multiply, or mma's packing; with bf16x6, tensorcore's multiply, or the lower tier's packing.
PACKERS, SIX_PACKERS = (
    Axis(tuple((("GUARDED", g), ("DECIDES", d)) for g, d in pairs)) for pairs in (((0, 0), (0, 1)), ((0, 0), (1, 1)))
)
A_UNIT, B_UNIT = _axis("A_UNIT_ROWS", 16, 64, 0), _axis("B_UNIT_ROWS", 16, 64, 0)


def _emulated_tiles(tiles: tuple[emulated.Tile, ...], inline: bool) -> Axis:
    return Axis(tuple((("PRODUCTS", t.products), *t.constants) for t in tiles if t.inline == inline))


PACKED_TILE = _emulated_tiles(emulated.TENSOR_TILES, inline=False)
INLINE_TILE = _emulated_tiles(emulated.TENSOR_TILES, inline=True)
DIRECT_TILE = Axis(
    tuple(
        (("TILE_M", t.m), ("TILE_N", t.n), ("STAGES", t.stages), ("SWAPPED", int(t.swapped)), ("KEPT", int(t.kept)))
        for t in direct.ALL
    )
)
DIRECT_K = _axis("BLOCK_K", direct.BLOCK_K, direct.HALF_K)
DIRECT_A, DIRECT_B = _axis("A_LOAD", *direct.RAW), _axis("B_LOAD", *direct.RAW)
CLUSTER, ALTERNATE = _axis("CLUSTER", *direct.CLUSTERS), _axis("ALTERNATE", 0, 1)
MMA_TILE = _emulated_tiles(emulated.MMA_TILES, inline=False)

_LAST = ("BIAS", "ACTIVATION")
_SIMT = (*_LAST, "A_LOAD", "B_LOAD", "C_VECTOR", "SPLIT_K", "STREAM_K", *SIMT_TILE.names)
_STORE = ("SPLIT_K", "C_VECTOR")


def _simt_threads(form: Form) -> int:
    return 32 * (form["TILE_M"] // (8 * form["THREAD_M"])) * (form["TILE_N"] // (4 * form["THREAD_N"]))


def _direct_allowed(form: Form) -> bool:
    """Return whether a form of direct can be in a plan: groups alternate only at tiles of 64 rows that no other block shares, raw
    tiles with shifts have to fit, and there is at most one K-block of 32."""
    if form["BLOCK_K"] < direct.BLOCK_K and form["CLUSTER"] > 1:
        return False
    tile = direct.Tile(form["TILE_M"], form["TILE_N"], form["STAGES"], bool(form["SWAPPED"]), bool(form["KEPT"]))
    loads = form["A_LOAD"], form["B_LOAD"]
    fits = tile.loads(loads, H200) == loads and not (tile.swapped and form["C_VECTOR"])
    if tile.kept:
        return fits and bool(form["ALTERNATE"]) and form["CLUSTER"] == 1 and bool(form["C_VECTOR"])
    return fits and (not form["ALTERNATE"] or (tile.m == 64 and form["CLUSTER"] == 1))


def _no_epilogue_of_parts(form: Form) -> bool:
    """Return whether a form has no epilogue where K is shared by partial sums: the reduction has it then."""
    return not (form["SPLIT_K"] == 1 and (form["BIAS"] or form["ACTIVATION"]))


def _simt_allowed(form: Form) -> bool:
    aligned = any(t.aligned and (t.m, t.n) == (form["TILE_M"], form["TILE_N"]) for t in fma.SIMT_TILES)
    return _no_epilogue_of_parts(form) and not (aligned and (form["A_LOAD"] % 2 or form["B_LOAD"] % 2))


def _narrow_allowed(form: Form) -> bool:
    along_k = {fma.form_constants(f): f.along_k for f in fma.NARROW_FORMS}
    along = along_k[tuple((name, form[name]) for name in NARROW_FORM.names)]
    return _no_epilogue_of_parts(form) and (form["LOAD"] >= 2) == along


def _tier_allowed(form: Form) -> bool:
    """Return whether a form's tier and products fit: the lower tier is bf16x6, and only fp16x3 has one."""
    if form["GUARDED"]:
        return form["PRODUCTS"] == 6
    return form["PRODUCTS"] == 3 or not form["LOWER_TIER"]


def _packer_allowed(form: Form) -> bool:
    """Return whether a form's loads fit: the lower tier packs both operands, and beside an operand of shifted lines (4 and 5),
    aligned lines along rows (0) are read as if they were shifted."""
    loads = {form["A_LOAD"], form["B_LOAD"]}
    return not (form["GUARDED"] and packing.PREPACKED in loads) and not (0 in loads and loads & {4, 5})


def _tensorcore_allowed(form: Form) -> bool:
    return _no_epilogue_of_parts(form) and _tier_allowed(form)


def _threads(count: int) -> Callable[[Form], int]:
    return lambda form: count


SOURCES = (
    Source(
        "naive", "fma/naive.cu", (*_LAST, "ALONG_M"), (EPILOGUE, _axis("ALONG_M", 0, 1)),
        ((ENDS, _axis("ALONG_M", 0, 1)), (EACH,)), _threads(128),
    ),
    Source("dot", "fma/dot.cu", _LAST, (EPILOGUE,), ((ENDS,), (EACH,)), _threads(256)),
    Source(
        "tiled", "fma/tiled.cu", (*_LAST, "A_ALONG_K", "B_ALONG_K"),
        (EPILOGUE, _axis("A_ALONG_K", 0, 1), _axis("B_ALONG_K", 0, 1)),
        ((ENDS, _axis("A_ALONG_K", 0, 1), _axis("B_ALONG_K", 0, 1)), (EACH,)), _threads(1024),
    ),
    Source(
        "simt", "fma/simt.cu", _SIMT, (EPILOGUE, A_LOAD, B_LOAD, C_VECTOR, SHARING, SIMT_TILE),
        ((SIMT_TILE, A_LOAD, B_LOAD, NOT_SHARED, NONE), (SIMT_TILE, SHARING, C_VECTOR, ENDS), (SHARING, A_LOAD, B_LOAD), (EACH,)),
        _simt_threads, _simt_allowed,
    ),
    Source(  # it loads nothing of A and B
        "simt", "fma/fixup.cu", _SIMT, (EPILOGUE, A_LOAD, B_LOAD, C_VECTOR, STREAM_K, SIMT_TILE),
        ((SIMT_TILE, C_VECTOR, ENDS), (EACH,)), _simt_threads, _simt_allowed,
    ),
    Source(  # side and split-K change where data comes from and goes to, not the loop
        "simt", "fma/narrow.cu", (*_LAST, "SIDE", "LOAD", *NARROW_FORM.names, "SPLIT_K"),
        (EPILOGUE, SIDE, LOAD, NARROW_FORM, NARROW_SHARING),
        (
            (NARROW_FORM, NARROW_SHARING), (NARROW_FORM, ENDS), (NARROW_FORM, LOAD), (NARROW_FORM, SIDE),
            (SIDE, NARROW_SHARING, LOAD), (EACH,),
        ),
        _threads(256), _narrow_allowed,
    ),
    # What both emulated kernels launch is listed with mma, which runs on every card; what is for bf16x6, with tensorcore.
    Source(
        "mma", "emulated/fallback.cu", ("PRODUCTS", *_SIMT),
        (PRODUCTS, EPILOGUE, A_LOAD, B_LOAD, C_VECTOR, NOT_SHARED, ACCURATE),
        ((A_LOAD, B_LOAD), (PRODUCTS, ENDS), (C_VECTOR, ENDS)), _simt_threads, _simt_allowed,
    ),
    Source(
        "tensorcore", "emulated/fallback.cu", ("PRODUCTS", *_SIMT),
        (SIX, EPILOGUE, A_LOAD, B_LOAD, C_VECTOR, NOT_SHARED, ACCURATE),
        ((A_LOAD,), (B_LOAD,), (C_VECTOR, ENDS)), _simt_threads, _simt_allowed,
    ),
    Source(
        "mma", "emulated/pack.cu", ("A_LOAD", "B_LOAD", "PRODUCTS", *PACKERS.names), (A_PACK, B_PACK, PRODUCTS, PACKERS),
        ((A_PACK, B_PACK), (PRODUCTS, A_PACK), (PRODUCTS, B_PACK), (PRODUCTS, PACKERS)), _threads(256), _packer_allowed,
    ),
    Source(
        "tensorcore", "emulated/pack.cu", ("A_LOAD", "B_LOAD", "PRODUCTS", *PACKERS.names), (A_PACK, B_PACK, SIX, SIX_PACKERS),
        ((A_PACK, SIX_PACKERS), (B_PACK, SIX_PACKERS)), _threads(256), _packer_allowed,
    ),
    Source("mma", "common/reduce.cu", (*_LAST, "GUARDED"), (EPILOGUE, UNGUARDED), ((ENDS,), (EACH,)), _threads(256)),
    Source("mma", ACCUMULATE, _LAST, (EPILOGUE,), ((ENDS,), (EACH,)), _threads(256)),
    Source("tensorcore", "common/reduce.cu", (*_LAST, "GUARDED"), (EPILOGUE, GUARDED), ((ENDS,), (EACH,)), _threads(256)),
    Source(  # units of rows are only constants that are compared with
        "tensorcore", "emulated/tensorcore.cu",
        (*_LAST, "PRODUCTS", "A_UNIT_ROWS", "B_UNIT_ROWS", *PACKED_TILE.names[1:], *_STORE, *TIERS.names),
        (EPILOGUE, A_UNIT, B_UNIT, PACKED_TILE, SPLIT_K, C_VECTOR, TIERS),
        ((PACKED_TILE, SPLIT_K, C_VECTOR, ENDS), (A_UNIT, B_UNIT), (PACKED_TILE, TIERS), (EACH,)), _threads(384),
        _tensorcore_allowed,
    ),
    Source(  # separate warpgroups load: so how they load and how the others store are covered separately
        "tensorcore", "emulated/tensorcore.cu",
        (*_LAST, "PRODUCTS", "A_LOAD", "B_LOAD", *INLINE_TILE.names[1:], *_STORE, *TIERS.names),
        (EPILOGUE, A_LOAD, B_LOAD, INLINE_TILE, SPLIT_K, C_VECTOR, TIERS),
        ((INLINE_TILE, A_LOAD, B_LOAD), (INLINE_TILE, SPLIT_K, C_VECTOR, ENDS), (INLINE_TILE, TIERS)), _threads(512),
        _tensorcore_allowed,
    ),
    Source(
        # separate warps load each operand
        "direct", "emulated/direct.cu",
        (*_LAST, "PRODUCTS", "A_LOAD", "B_LOAD", *DIRECT_TILE.names, "BLOCK_K", "CLUSTER", "ALTERNATE", "C_VECTOR"),
        (EPILOGUE, SIX, DIRECT_A, DIRECT_B, DIRECT_TILE, DIRECT_K, CLUSTER, ALTERNATE, C_VECTOR),
        (
            (DIRECT_TILE, DIRECT_A), (DIRECT_TILE, DIRECT_B), (DIRECT_TILE, CLUSTER, ALTERNATE), (CLUSTER, C_VECTOR, ENDS),
            (EACH,),
        ),
        _threads(direct.THREADS), _direct_allowed,
    ),
    Source(
        "mma", "emulated/mma.cu", (*_LAST, *MMA_TILE.names, *_STORE), (EPILOGUE, MMA_TILE, SPLIT_K, C_VECTOR),
        ((MMA_TILE, SPLIT_K, C_VECTOR, ENDS), (EACH,)), _threads(256), _no_epilogue_of_parts,
    ),
)  # fmt: skip
