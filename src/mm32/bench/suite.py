"""The named sets of cases that records are made of."""

from __future__ import annotations

from typing import Any

from mm32.bench.measure import Case
from mm32.gemm import LAYOUTS


def _main(layout: str, **options: Any) -> Case:
    return Case(2048, 4096, 8192, layout=layout, **options)


# name -> (cases, implementations); the first implementation is what the others are compared with
SETS: dict[str, tuple[list[Case], list[str]]] = {
    "main": (
        [_main(layout, distribution=d) for d in ("randn", "rand") for layout in ("tt", "nt", "tn", "nn")]
        + [_main(layout, bias=True, activation="relu") for layout in ("tt", "nt")],
        ["torch", "torch-tf32", "mm32", "mm32-packed", "mm32-tf32", "simt"],
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
}
