"""Every form of every kernel that a plan can have, for what is compiled and checked without a card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mm32 import activations
from mm32.plan.data import NO_EPILOGUE, Constants
from mm32.plan.fp32 import ACCURATE_TILE, NARROW_FORMS, SIMT_TILES, SimtTile, narrow_form, simt_form
from mm32.plan.split import BEFORE, MMA_TILES, TENSOR_TILES, tensor_form


def variants() -> Iterator[tuple[str, str, Constants, int]]:
    """Every compiled form that plans differ in, as (kernel, source, constants, threads a block). Epilogues multiply the forms
    without touching the main loop: they are covered by the empty one and the heaviest on every form, and each activation once a
    kernel; of simt's, the heaviest on one form a tile and on those of stream-K. Its 16-byte stores stand with three of its four
    loads, the others with the fourth."""
    light = NO_EPILOGUE
    heavy = (("BIAS", 1), ("ACTIVATION", activations.number("gelu_tanh")))
    each = [(("BIAS", i % 2), ("ACTIVATION", known.number)) for i, known in enumerate(activations.ACTIVATIONS)]
    each.remove(heavy)

    def with_epilogues(
        kernel: str, source: str, forms: Sequence[Constants], threads: int, every: bool = True
    ) -> Iterator[tuple]:
        for number, form in enumerate(forms):
            for epilogue in [light, heavy] + (each if number == 0 and every else []):
                yield kernel, source, (*epilogue, *form), threads

    yield from with_epilogues("naive", "naive.cu", [(("ALONG_M", v),) for v in (0, 1)], 128)
    yield from with_epilogues("dot", "dot.cu", [()], 256)
    tiled = [(("A_ALONG_K", i), ("B_ALONG_K", j)) for i in (0, 1) for j in (0, 1)]
    yield from with_epilogues("tiled", "tiled.cu", tiled, 1024)
    for t in (*SIMT_TILES, ACCURATE_TILE):
        first, *forms = [simt_form(t, i, j, int(i != 1)) for i, j in load_pairs(t)]
        yield from with_epilogues("simt", "simt.cu", [first], t.threads, t == SIMT_TILES[0])
        for form in forms:
            yield "simt", "simt.cu", (*light, *form), t.threads
        for load in (0, 2):  # where sums go does not change the loop
            yield "simt", "simt.cu", (*light, ("PRODUCTS", 3), *simt_form(t, load, load, load // 2, 1)), t.threads
        split: Constants = (("PRODUCTS", 3),)
        pairs = [pair for pair in ((0, 0), (2, 2), (1, 3), (3, 1)) if pair in load_pairs(t)]
        streams = [(*split, *simt_form(t, i, j, int(i != 1), 2)) for i, j in pairs]
        yield from with_epilogues("simt", "simt.cu", streams, t.threads, False)
        for vector in (0, 1):
            yield from with_epilogues(
                "simt", "fixup.cu", [(*split, *simt_form(t, 0, 0, vector, 2))], t.threads, vector == 0
            )
    # Side and split change where data comes from and goes to, not the loop: their four pairs take turns among the forms.
    for number, narrow in enumerate(NARROW_FORMS):
        for vector in (0, 1):
            turn = (number + 2 * vector) % 4
            form = narrow_form(narrow, turn % 2, 2 * narrow.along_k + 1 - vector, turn // 2)
            epilogues = [light] if turn >= 2 else [light, heavy]
            for epilogue in epilogues:
                yield "simt", "narrow.cu", (*epilogue, *form), 256
    # What both kernels for split operands launch is listed with the one that runs on every card.
    t = ACCURATE_TILE
    first, *forms = [(("PRODUCTS", 3), *light, *simt_form(t, i, j, int(i != 1))) for i, j in load_pairs(t)]
    one_product = (("PRODUCTS", 1), *first[1:])
    heaviest = (first[0], *heavy, *first[3:])
    for form in (first, one_product, heaviest, *forms):
        yield "mma", "careful.cu", form, t.threads
    for products in (3, 1):
        for i in range(BEFORE + 1):
            for j in range(BEFORE + 1):
                yield "mma", "pack.cu", (("A_LOAD", i), ("B_LOAD", j), ("PRODUCTS", products)), 256
        yield from with_epilogues("mma", "reduce.cu", [(("PRODUCTS", products),)], 256, products == 3)
    for tile in TENSOR_TILES:
        # The units are constants to compare with; how C is stored and whether K is split change the code.
        of_tile = tensor_form(tile)
        loads: Constants = (("PRODUCTS", tile.products), ("A_UNIT", 64), ("B_UNIT", 16))
        stores: list[Constants] = [(("SPLIT", i), ("C_VECTOR", j)) for i in (0, 1) for j in (0, 1)]
        if tile.direct:
            # Warpgroups of their own load: each pair of loads stands with one of the four ways to store, each of these with four.
            loads, *others = [
                (("PRODUCTS", tile.products), ("A_LOAD", i), ("B_LOAD", j)) for i in range(4) for j in range(4)
            ]
            for number, other in enumerate(others, 4):
                form = (*light, *other, *of_tile, *stores[number % 4])
                yield "tensorcore", "tensorcore.cu", form, tile.threads
        forms = [(*loads, *of_tile, *store) for store in stores[:2]]
        yield from with_epilogues("tensorcore", "tensorcore.cu", forms, tile.threads, tile == TENSOR_TILES[0])
        for store in stores[2:]:
            yield "tensorcore", "tensorcore.cu", (*light, *loads, *of_tile, *store), tile.threads
    for mma_tile in MMA_TILES:
        of_tile = (("PRODUCTS", mma_tile.products), ("TILE_N", mma_tile.n), ("STAGES", mma_tile.stages))
        forms = [(*of_tile, ("SPLIT", 0), ("C_VECTOR", v)) for v in (0, 1)]
        yield from with_epilogues("mma", "mma.cu", forms, 256, mma_tile == MMA_TILES[0])
        for v in (0, 1):
            yield "mma", "mma.cu", (*light, *of_tile, ("SPLIT", 1), ("C_VECTOR", v)), 256


def load_pairs(tile: SimtTile) -> list[tuple[int, int]]:
    """How a tile of simt may bring A and B in (simt.cuh)."""
    each = (0, 2) if tile.aligned else range(4)
    return [(i, j) for i in each for j in each]
