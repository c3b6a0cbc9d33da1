"""The cases that are measured: the named sets, and shapes as a user writes them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from mm32 import sizes
from mm32.bench.measure import Case
from mm32.bench.peers import BASELINE, IMPLEMENTATIONS
from mm32.gemm import LAYOUTS


def _main(layout: str, **options: Any) -> Case:
    return Case(2048, 4096, 8192, layout=layout, **options)


def _auto() -> list[Case]:
    """Return products of all the kinds for which the planner makes a choice."""
    squares = [Case(s, s, s) for s in (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)]
    squares += [Case(s, s, s, layout) for s in (256, 1024, 4096) for layout in ("nt", "tn", "tt")]
    squares += [Case(s, s, s) for s in (100, 333, 777, 1000, 1500, 2049, 3000, 5000, 10000)]
    few = (1, 2, 4, 8, 16, 64, 128, 256)
    skinny = [Case(s, side, side) for side in (1024, 4096, 16384) for s in few]
    skinny += [Case(side, s, side) for side in (4096,) for s in few]
    skinny += [Case(s, 4096, 4096, "nt") for s in (1, 16, 64, 256)]  # a layer: x @ weight.T
    vectors = [Case(16384, 1, 16384), Case(16384, 1, 16384, "tn"), Case(1, 1, 65536), Case(1024, 1, 1024)]
    deep = [
        Case(64, 64, 1048576),
        Case(128, 128, 131072),
        Case(256, 256, 524288),
        Case(256, 256, 524288, "tn"),
        Case(512, 512, 262144),
        Case(1024, 1024, 65536),
        Case(1024, 1024, 65536, "tn"),  # a layer's weight gradient
        Case(2048, 4096, 8192, "tt"),
    ]
    flat = [Case(4096, 4096, k) for k in (1, 2, 4, 8, 16, 32, 64, 128, 256)]
    flat += [Case(16384, 16384, 16), Case(32768, 32768, 64)]
    odd = [
        Case(8205, 5921, 2949),
        Case(4097, 4099, 4095),
        Case(1025, 1025, 1025),
        Case(777, 555, 1333),
        Case(1023, 2047, 4097, "tt"),
        Case(3001, 5003, 17),
        Case(129, 257, 8193),
        Case(127, 127, 127, "nt"),
    ]
    batched = [
        Case(32, 32, 32, batch=4096),
        Case(64, 64, 64, batch=2048),
        Case(128, 128, 128, batch=512),
        Case(256, 256, 256, batch=64),
        Case(512, 512, 512, batch=16),
        Case(1024, 1024, 1024, batch=8),
        Case(2048, 2048, 2048, batch=4),
        Case(100, 100, 100, batch=100),
        Case(1024, 1024, 64, "nt", batch=64),  # attention: queries with keys, then scores with values
        Case(1024, 64, 1024, batch=64),
    ]
    return squares + skinny + vectors + deep + flat + odd + batched


def _small() -> list[Case]:
    """Return small, thin, odd and batched products, in every layout."""
    sizes = [
        *((s, s, s) for s in (128, 256, 512, 640, 777, 1024, 1025, 2047)),
        *((768, 512, 1024), (1000, 700, 300), (777, 555, 1333), (4097, 4099, 4095), (32768, 32768, 32)),
        *((65536, 256, 256), (256, 65536, 256), (65536, 512, 64), (512, 65536, 64)),
        *((rows, 4096, 4096) for rows in (1, 4, 16, 32, 64, 128)),
        *((rows, 16384, 4096) for rows in (1, 16)),
        *((rows, 11008, 4096) for rows in (32, 128)),
    ]
    batches = [
        *((s, s, s, batch) for s, batch in ((64, 2048), (128, 512), (256, 64), (1000, 16))),
        *((1024, 1024, 64, 128), (1024, 64, 1024, 128)),
    ]
    cases = [Case(m, n, k, layout) for m, n, k in sizes for layout in LAYOUTS]
    return cases + [Case(m, n, k, layout, batch=batch) for m, n, k, batch in batches for layout in LAYOUTS]


# A case of "random" has operands and result of at most LARGEST bytes together, and at least LEAST_FLOPS FLOP.
LARGEST, LEAST_FLOPS = 40 * 10**9, 1_000_000


def random_cases(count: int = 400, seed: int = 0) -> list[Case]:
    """Return cases with random layouts and sizes log-uniform in 16 .. 32768, half of them multiples of 8. A third of the cases
    are in batches of up to 512."""
    draw = random.Random(seed)
    cases: list[Case] = []
    while len(cases) < count:
        m, n, k = (int(16 * 2 ** draw.uniform(0, 11)) for _ in range(3))
        if draw.random() < 0.5:
            m, n, k = (-(-size // 8) * 8 for size in (m, n, k))
        batch = int(2 ** draw.uniform(1, 9)) if draw.random() < 1 / 3 else 1
        case = Case(m, n, k, draw.choice(LAYOUTS), batch=batch)
        if case.flops >= LEAST_FLOPS and 4 * batch * (m * k + k * n + m * n) <= LARGEST:
            cases.append(case)
    return cases


PLAIN = [
    _main(layout, distribution=d) for d in ("randn", "rand") for layout in ("tt", "nt", "tn", "nn")
]  # large, without an epilogue

# name -> (cases, implementations); the others are compared with the first implementation
SETS: dict[str, tuple[list[Case], list[str]]] = {
    "main": (
        PLAIN + [_main(layout, bias=True, activation="relu") for layout in ("tt", "nt")],
        ["torch", "torch-tf32", "mm32", "mm32-packed", "mm32-tf32", "simt"],
    ),
    "rivals": (
        PLAIN,
        ["torch", "torch-tf32", "triton-tf32x3", "mm32", "mm32-packed", "mm32-tf32", "simt"],
    ),
    "shapes": (
        [Case(s, s, s) for s in (512, 1024, 2048, 4096, 8192, 16384)]
        + [
            Case(8205, 5921, 2949),
            Case(4097, 4099, 4095),
            Case(32768, 32768, 64),
            Case(256, 256, 524288),
            Case(128, 4096, 4096),
            Case(1000, 1000, 1000),
            Case(777, 555, 1333),
            Case(16384, 16384, 16),
            Case(16, 4096, 4096),
            Case(256, 256, 256, batch=64),
        ],
        ["torch", "torch-tf32", "mm32", "mm32-tf32", "mm32-ieee"],
    ),
    "ladder": (
        [_main(layout) for layout in LAYOUTS],
        ["torch", "naive", "dot", "tiled", "simt", "mma", "tensorcore"],
    ),
    "ieee": (
        [_main(layout) for layout in LAYOUTS]
        + [_main(layout, bias=True, activation="relu") for layout in LAYOUTS]
        + [Case(s, s, s, layout) for s in (1024, 2048, 4096, 8192) for layout in LAYOUTS]
        + [Case(1000, 1000, 1000), Case(777, 555, 1333)]
        + [Case(4097, 4099, 4095, layout) for layout in LAYOUTS]
        + [Case(16, 4096, 4096), Case(16, 4096, 4096, "nt"), Case(4096, 1, 4096), Case(8, 4096, 4096, "nt")]
        + [Case(100, 100, 100000), Case(256, 256, 524288), Case(32768, 32768, 64)]
        + [Case(s, s, s) for s in (128, 256, 512)],
        ["torch", "simt"],
    ),
    "small": (_small(), ["torch", "torch-tf32", "mm32"]),
    "random": (random_cases(), ["torch", "mm32"]),
    "auto": (_auto(), ["torch", "mm32", "simt", "tensorcore"]),
    "quick": (
        [
            *(Case(s, s, s) for s in (512, 1024, 2048, 4096, 8192)),
            _main("tt"),
            _main("nn", distribution="rand"),
            Case(1000, 1000, 1000),
            Case(128, 4096, 4096, "nt"),
            Case(256, 256, 65536),
        ],
        ["torch", "torch-tf32", "mm32", "mm32-tf32"],
    ),
}

DISTRIBUTIONS = ("randn", "rand")


def parse(shapes: str, against: str | None = None) -> tuple[list[Case], list[str]]:
    """Return the cases and implementations that a user asks for.

    Args:
        shapes: names of SETS and "MxKxN[:layout][:distribution]" (`mm32.sizes`), separated by commas.
        against: names of implementations, separated by commas; "torch" and "mm32" always run too. None for the implementations
            of the sets, or of "quick" for shapes.

    Raises ValueError, with the names that exist, for any other name.
    """
    cases: dict[Case, None] = {}
    names: dict[str, None] = {}
    for item in _items(shapes, "shapes"):
        of_set, with_them = SETS.get(item) or (_cases(item), SETS["quick"][1])
        cases.update(dict.fromkeys(of_set))
        names.update(dict.fromkeys(with_them))
    if against is not None:
        names = dict.fromkeys([BASELINE, *_items(against, "implementations"), "mm32"])
    for name in names:
        if name not in IMPLEMENTATIONS:
            raise ValueError(f"unknown implementation {name!r}: there are {', '.join(IMPLEMENTATIONS)}")
    return list(cases), sorted(names, key=list(IMPLEMENTATIONS).index)


def _items(text: str, what: str) -> Sequence[str]:
    items = [item.strip() for item in text.split(",") if item.strip()]
    if not items:
        raise ValueError(f"no {what} in {text!r}")
    return items


def _cases(text: str) -> list[Case]:
    asked = sizes.parse(text, f"a set ({', '.join(SETS)})", distribution=DISTRIBUTIONS)
    if not all(one.m and one.k and one.n for one in asked):
        raise ValueError(f"{text!r}: there is nothing to time in a size of 0")
    return [Case(one.m, one.n, one.k, one.layout or "nn", one.words.get("distribution", "randn")) for one in asked]
