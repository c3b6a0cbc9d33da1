"""Tables that group or combine the rows of a record: small products, random products, first calls, several cards, limits of the
workspace."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable

import scaling_estimate as estimated

from mm32.bench import summary
from mm32.gemm import LAYOUTS

from .columns import CASE, Load, Row, Source, error, grid, kernel, markdown, short, size, speedup

LOST = 0.95  # a product is lost if the upper end of its speedup's interval is below this


def small(load: Load, source: Source) -> str:
    """Return the table of small products: a line for each size, with the times of its layouts."""
    by_size: dict[str, dict[str, Row]] = {}
    for row in load("small")["rows"]:
        by_size.setdefault(size(row), {})[row["layout"]] = row["results"]

    def line(name: str, of: dict[str, Row]) -> list[str]:
        results = [of[layout] for layout in LAYOUTS]

        def each(text: Callable[[Row], str]) -> str:
            return " / ".join(text(r) for r in results)

        kernels = dict.fromkeys(r["mm32"]["kernel"].split()[0] for r in results)
        return [
            name,
            ", ".join(kernels),
            each(lambda r: f"{r['torch']['seconds'] * 1e6:.3g}"),
            each(lambda r: f"{r['mm32']['seconds'] * 1e6:.3g}"),
            each(lambda r: f"**{r['mm32']['speedup']:.2f}**"),
            each(lambda r: f"{r['torch-tf32']['speedup']:.2f}"),
            f"{max(r['torch']['error'] for r in results):.1e}",
            f"{max(r['mm32']['error'] for r in results):.1e}",
        ]

    heads = [
        "M × K × N",
        "kernel",
        "torch µs, nn / nt / tn / tt",
        "mm32 µs",
        "mm32 : torch",
        "TF32 : torch",
        "error torch",
        "error mm32",
    ]
    return markdown(heads, (line(name, of) for name, of in by_size.items())) + source("small")


SHORT = 50e-6  # seconds; if torch takes less, times of one kernel differ by some per cent


def at_random(load: Load, source: Source) -> str:
    """Return the table of random products, grouped by torch's time.

    For each group it has the number of products, the geometric mean of the ratios, the lowest ratio, and how many products are
    lost. Below it are the products that are lost, and what could not be measured.
    """
    drawn = load("random")["rows"]
    measured = [row for row in drawn if {"torch", "mm32"} <= row["results"].keys()]
    rows = [row["results"] for row in measured]
    edges = (0.0, 10e-6, SHORT, 1e-3, math.inf)
    groups = []
    for low, high in itertools.pairwise(edges):
        name = f"{summary.time(low)} to {summary.time(high)}" if low and high < math.inf else ""
        name = name or (f"up to {summary.time(high)}" if high < math.inf else f"above {summary.time(low)}")
        groups.append((name, [r for r in rows if low <= r["torch"]["seconds"] < high]))
    groups += [(f"all above {summary.time(SHORT)}", [r for r in rows if r["torch"]["seconds"] >= SHORT]), ("all", rows)]

    def line(name: str, of: list[Row]) -> list[str]:
        ratios = [r["mm32"]["speedup"] for r in of]
        return [
            name,
            str(len(of)),
            f"**{math.exp(sum(map(math.log, ratios)) / len(of)):.2f}**",
            f"{min(ratios):.2f}",
            str(sum(r["mm32"]["speedup_high"] < LOST for r in of)),
            f"{max(r['mm32']['error'] / r['torch']['error'] for r in of):.2f}",
        ]

    heads = [
        "torch takes",
        "products",
        "mm32 : torch, geometric mean",
        "lowest",
        f"below {LOST}",
        "error of mm32 : torch, at most",
    ]
    text = markdown(heads, (line(name, of) for name, of in groups if of))
    lost = [row for row in measured if row["results"]["mm32"]["speedup_high"] < LOST]
    text += f'\n"Below {LOST}" counts the products whose whole 95 % interval is below that'
    if lost:
        columns = [
            CASE, ("kernel", kernel), ("torch fp32", short("torch")), ("mm32", short("mm32")),
            ("mm32 : torch (95 %)", speedup("mm32")), ("error torch", error("torch")), ("error mm32", error("mm32")),
        ]  # fmt: skip
        text += f". These are, lowest first:\n\n{grid(columns, summary.worst(lost, count=len(lost)))}"
    else:
        text += "; there is none.\n"
    short_ones = [r["mm32"] for r in rows if r["torch"]["seconds"] < SHORT]
    if same := sorted(mm32["speedup"] for mm32 in short_ones if mm32["kernel"] == "torch"):
        text += (
            f"\nIn {len(same)} of the products that take torch less than {summary.time(SHORT)} the kernel is `torch`: both "
            f"columns are times of torch's own product, and what their ratios differ by, {same[0]:.2f} to {same[-1]:.2f}, is "
            "the measurement's noise.\n"
        )
    others = [row for row in drawn if not {"torch", "mm32"} <= row["results"].keys()]
    reasons = Counter("; ".join(dict.fromkeys(row["unavailable"].values())) for row in others)
    for why, count in reasons.items():
        text += f"\nNot measured: {count} of the {len(drawn)} ({why}).\n"
    return text + source("random")


def first_calls(load: Load, source: Source) -> str:
    """Return the table of first calls: host milliseconds by where the kernels come from, and of torch's first product or step."""

    def line(row: Row) -> list[str]:
        results, step = row["results"], "torch" in row["results"]
        origins = [results[f"mm32 {origin}" if step else origin] for origin in ("wheel", "cache", "compiled")]
        torchs = results["torch"]["seconds"]["call"] if step else origins[0]["seconds"]["torch"]
        kernels = origins[0]["kernels"] if step else [origins[0]["kernel"]]
        return [
            row["case"].replace("x", " × ") if not step else row["case"],
            ", ".join(kernels),
            f"{torchs * 1e3:.0f}",
            *(f"{o['seconds']['call'] * 1e3:.0f}" for o in origins),
        ]

    heads = ["first call of", "kernel", "torch ms", "mm32, from the wheel", "from the cache on disk", "compiled"]
    return markdown(heads, map(line, load("first_call")["rows"])) + source("first_call")


def several_cards(cards: int) -> Callable[[Load, Source], str]:
    """Return the table of products over so many cards: a line for each product and placement.

    It has dashes for what was not timed there or is not in an older record. The page introduces the table of two cards. A table
    of more cards may be missing, so it introduces itself.
    """

    def line(row: Row) -> list[str]:
        case, ours, torchs = row["case"], row["results"]["mm32"], row["results"].get("torch")
        packed = row["results"].get("mm32-packed")
        return [
            f"{case['m']} × {case['k']} × {case['n']}",
            f"{case['sharded']}, {case['growth']}",
            f"{torchs['seconds'] * 1e3:.2f} ms" if torchs else "–",
            f"{ours['seconds'] * 1e3:.2f} ms",
            f"**{torchs['seconds'] / ours['seconds']:.2f}**" if torchs else "–",
            f"{torchs['normwise']:.1e}" if torchs else "–",
            f"{ours['normwise']:.1e}",
            f"{packed['seconds'] * 1e3:.2f} ms, {packed['normwise']:.1e}" if packed else "–",
            f"{estimated.share(row):.3f}" if "alone" in row else "–",
            f"{estimated.share_of_whole(row):.3f}" if "whole" in row else "–",
        ]

    heads = [
        "M × K × N", "A sharded by, growth", "torch fp32", "mm32", "mm32 : torch", "error torch", "error mm32",
        "mm32, B packed before, error", "of the cards' own rates, for their parts", "for the whole product",
    ]  # fmt: skip
    name = f"scaling-{cards}"
    head = "" if cards == 2 else f"{cards} cards:\n\n"
    return lambda load, source: head + markdown(heads, map(line, load(name)["rows"])) + source(name)


def estimated_cards(load: Load, source: Source) -> str:
    """Return the table of a paper estimate, not a measurement: a line for each product and number of cards."""
    parts = estimated.measured(load("scaling-2"))

    def line(case: tuple[str, int, int, int, int]) -> list[str]:
        what, m, k, n, cards = case
        each = [parts.seconds(place, m, k, n, cards) for place in estimated.PLACES]
        alone = parts.seconds("rows", m, k, n, cards)
        return [
            f"{m} × {k} × {n}, {what}",
            str(cards),
            f"{alone * 1e3:.1f} ms",
            *(f"{alone / seconds:.2f}" for seconds in each[1:]),
            "{} × {}".format(*parts.grid(m, k, n, cards)),
            " / ".join(
                f"{estimated.memory(m, k, n, *grid) / 2**30:.0f}" for grid in ((cards, 1), parts.grid(m, k, n, cards))
            ),
        ]

    heads = [
        "M × K × N", "cards", "the products alone", "rows, B gathered", "a grid", "K, all-reduced",
        "the grid", "GiB a card, by rows / in the grid",
    ]  # fmt: skip
    said = (
        f"From the record: {parts.rate * 1e-12:.0f} TFLOP/s a card, {parts.bandwidth * 1e-9:.0f} GB/s a card in an "
        f"all-reduce. Assumed, not measured: {estimated.HOST} cards a host, and {estimated.BETWEEN * 1e-9:.0f} GB/s for each of "
        "them between hosts.\n"
    )
    return markdown(heads, map(line, estimated.CASES)) + "\n" + said + source("scaling-2")


def workspace(load: Load, source: Source) -> str:
    """Return the table of products in blocks: a line for each product and limit."""

    def lines(row: Row) -> list[list[str]]:
        made, first = [], next(iter(row["results"].values()))
        for name, r in row["results"].items():
            of = [f"{row['m']} × {row['k']} × {row['n']}", name]
            if "seconds" in r:
                cut = f"{r['blocks']} of {r['rows']} × {r['columns']}, {r['spans']}"
                ratio = f"{r['seconds'] / first['seconds']:.3f}" if "seconds" in first else "–"
                of += [cut, f"{r['taken'] / 2**30:.2f} GiB", f"{r['seconds'] * 1e3:.1f} ms", ratio, f"{r['error']:.1e}"]
            else:
                of += ["no memory", "–", "–", "–", "–"]
            made.append(of)
        return made

    heads = [
        "M × K × N",
        "limit, or kernel",
        "blocks of C, spans of K",
        "memory taken",
        "time",
        "over the first",
        "error",
    ]
    rows = load("workspace")["rows"]
    return markdown(heads, itertools.chain.from_iterable(map(lines, rows))) + source("workspace")
