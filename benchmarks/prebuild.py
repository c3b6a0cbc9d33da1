"""Compiles the usual forms of the kernels for each architecture, to ship in a wheel (`make cubins`, mm32/cuda/prebuilt.py).

The usual forms are derived: the products of the records under results/ and of linear layers are planned for a card of each
architecture. All forms of the layers' plans are taken, then others, the cheapest first, until SHARE of all plans need no further
form. For the architectures asked for, files of other forms, of older sources and of another compiler are removed. `--list` prints
the forms and compiles nothing.

    python benchmarks/prebuild.py [--arch sm_90a ...] [--list]
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from mm32 import gemm
from mm32.cuda import compile as compiler
from mm32.cuda import prebuilt
from mm32.gemm import Gemm
from mm32.plan import Card, plan
from mm32.plan import card as cards
from mm32.plan.plan import ACCUMULATE

RESULTS = Path(__file__).parent / "results"
RECORDS = ("main", "shapes", "auto", "ieee")
CARDS = (cards.A100, cards.A10, cards.L40S, cards.H200, cards.B200, cards.RTX_5090)  # one of each architecture
TOKENS, WIDTHS, VOCABULARY = 2048, (768, 1024, 4096), 50257  # of the linear layers
SHARE = 0.95  # the least share of all plans that need no other forms
MOST_BYTES = 20 * 2**20  # the most of all cubins, compressed

Form = tuple[str, tuple[tuple[str, int], ...]]  # source, constants


def _layers() -> Iterator[dict[str, Any]]:
    """Yield the products of transformers' linear layers: forward with and without bias, and the gradients of input and weight."""
    shapes = [(width, out * width) for width in WIDTHS for out in (1, 3, 4)] + [(4 * width, width) for width in WIDTHS]
    for inside, outside in [*shapes, (WIDTHS[0], VOCABULARY)]:
        yield _row(TOKENS, inside, outside, "nt", bias=True)
        yield _row(TOKENS, inside, outside, "nt")
        yield _row(TOKENS, outside, inside, "nn")
        yield _row(outside, TOKENS, inside, "tn")


def _row(m: int, k: int, n: int, layout: str, *, bias: bool = False) -> dict[str, Any]:
    return {"m": m, "n": n, "k": k, "layout": layout, "bias": bias, "activation": None, "batch": 1}


def _recorded() -> Iterator[dict[str, Any]]:
    """Yield the products of the records, and each `x @ weight.T` with a bias too, as in a linear layer."""
    for path in sorted(RESULTS.glob("*/*.json")):
        if path.stem not in RECORDS:
            continue
        for row in json.loads(path.read_text())["rows"]:
            yield row
            if row["layout"] == "nt":
                yield {**row, "bias": True}


def products(rows: Iterable[dict[str, Any]] | None = None) -> Iterator[Gemm]:
    """Yield the products of the records and linear layers, or of `rows`, each once, with contiguous aligned operands."""
    seen = set()
    for row in itertools.chain(_recorded(), _layers()) if rows is None else rows:
        key = tuple(row[name] for name in ("m", "n", "k", "layout", "bias", "activation", "batch"))
        if key not in seen:
            seen.add(key)
            yield _gemm(row)


def _gemm(row: dict[str, Any]) -> Gemm:
    batch = (row["batch"],) if row["batch"] > 1 else ()

    def stored(rows: int, columns: int, transposed: bool) -> torch.Tensor:
        return torch.empty(*batch, columns, rows).mT if transposed else torch.empty(*batch, rows, columns)

    with torch.device("meta"):
        a, b = (
            stored(rows, columns, letter == "t")
            for rows, columns, letter in zip((row["m"], row["k"]), (row["k"], row["n"]), row["layout"], strict=True)
        )
        bias = torch.empty(row["n"]) if row["bias"] else None
        return gemm.describe(a, b, bias, torch.empty(*batch, row["m"], row["n"]), row["activation"])


def _forms(product: Gemm, card: Card) -> frozenset[Form]:
    return frozenset((launch.source, launch.constants) for launch in plan(product, card, torch="fp32").launches)


def usual(card: Card, share: float = SHARE) -> list[Form]:
    """Return the forms of linear layers, and nearly the fewest others such that `share` of all plans for `card` need no more.

    Plans by torch's own product need no forms and are not counted.
    """
    plans = Counter(forms for product in products() if (forms := _forms(product, card)))
    chosen: frozenset[Form] = frozenset().union(*(_forms(product, card) for product in products(_layers())))
    while sum(count for forms, count in plans.items() if forms <= chosen) < share * sum(plans.values()):
        left = {forms: count for forms, count in plans.items() if not forms <= chosen}
        ranked = []  # by the number of new forms for each plan that could then run
        for forms in left:
            gained = sum(count for other, count in left.items() if other <= chosen | forms)
            ranked.append((len(forms - chosen) / max(gained, 0.5), sorted(forms)))
        chosen |= frozenset(min(ranked)[1])
    # No recorded product is computed in blocks with spans of K; one that is needs these forms besides forms that are here.
    sums = {(ACCUMULATE, (("BIAS", bias), ("ACTIVATION", 0))) for bias in (0, 1)}
    return sorted(chosen | sums)


def _keep(source: str, constants: tuple[tuple[str, int], ...], arch: str) -> int:
    return prebuilt.keep(source, constants, arch).stat().st_size


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [card.arch for card in CARDS]
    parser.add_argument("--arch", nargs="+", choices=known, default=known, help="architectures; by default all")
    parser.add_argument("--list", action="store_true", help="print the forms only")
    args = parser.parse_args()
    wanted = [(*form, card.arch) for card in CARDS if card.arch in args.arch for form in usual(card)]
    if args.list:
        for source, constants, arch in wanted:
            print(arch, source, *(f"{name}={value}" for name, value in constants))
        return 0
    paths = {prebuilt.path(*form) for form in wanted}
    version = compiler.compiler_version()
    there = {entry.path: entry for entry in prebuilt.entries()}
    for old in prebuilt.FOLDER.glob("*"):
        entry = there.get(old)
        if entry is None or (entry.arch in args.arch and (old not in paths or entry.compiler != version)):
            old.unlink()
    missing = [form for form in wanted if not prebuilt.path(*form).exists()]
    print(f"{len(wanted)} cubins, {len(missing)} to compile", flush=True)
    start = time.monotonic()
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(_keep, *form) for form in missing]
        for number, future in enumerate(as_completed(futures), 1):
            future.result()
            if number % 10 == 0 or number == len(missing):
                print(f"{number} of {len(missing)}, {time.monotonic() - start:.0f} s", flush=True)
    size = sum(path.stat().st_size for path in paths)
    print(f"{len(paths)} cubins, {size / 2**20:.1f} MiB in {prebuilt.FOLDER}")
    if size > MOST_BYTES:
        print(f"that is more than {MOST_BYTES / 2**20:.0f} MiB", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
