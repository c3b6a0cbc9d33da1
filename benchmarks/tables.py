"""Rewrites the tables and pictures of README.md and docs/ from the records in benchmarks/results/: python benchmarks/tables.py.

A table stands between `<!-- table: NAME -->` and `<!-- end table -->`, and so does what shows a picture, whose NAME begins with
"picture-"; the pictures themselves are docs/pictures/NAME-light.svg and NAME-dark.svg (pictures.py, diagrams.py). With --check
nothing is written: exit 1 if a table or a picture differs from its record, and a line for every record that is older than the
kernels it speaks of.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mm32.bench import families, record, summary
from mm32.verify import Verdict

sys.path.append(str(Path(__file__).parent))  # where this file is loaded by its path
from rendering import grouped, overviews, programs, verdicts
from rendering.columns import (
    CASE,
    LAYOUT,
    PRODUCT,
    Cell,
    Row,
    error,
    grid,
    kernel,
    seconds,
    short,
    size,
    speedup,
    time,
)
from rendering.diagrams import DIAGRAMS
from rendering.drawing import THEMES
from rendering.pictures import PICTURES

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
CARD = "nvidia-h200"
PAGES = (
    "README.md",
    "docs/batches.md",
    "docs/comparison.md",
    "docs/distributed.md",
    "docs/evidence.md",
    "docs/families.md",
    "docs/index.md",
    "docs/kernels.md",
    "docs/layers.md",
    "docs/models.md",
    "docs/numerics.md",
    "docs/pytorch.md",
    "docs/results.md",
    "docs/verifying.md",
)
MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end table -->)", re.S)


def load(name: str) -> dict[str, Any]:
    return record.read(RESULTS / CARD / f"{name}.json")


def source(*names: str) -> str:
    """The line under a table: where and when it was measured, and the records' paths, as links from the repository's root; one
    after another where they differ in that."""
    lines: dict[str, list[str]] = {}
    for name in names:
        made, path = load(name), f"benchmarks/results/{CARD}/{name}.json"
        e = made["environment"]
        where = f"{e['card']}, driver {e['driver']}, torch {e['torch']}, {made['made'][:10]}"
        lines.setdefault(where, []).append(f"[{path}](/{path})")
    old = sorted({kernel for name in names for kernel in record.stale(load(name))})
    note = f" **Measured before the latest change to {', '.join(old)}.**" if old else ""
    return "\n" + " ".join(f"{where}; {', '.join(paths)}." for where, paths in lines.items()) + note + "\n"


def table(name: str, columns: Iterable[tuple[str, Cell]], rows: Iterable[Row] | None = None) -> str:
    """The Markdown of a table of record `name`, and where that is; of its rows, if no others are given."""
    return grid(columns, load(name)["rows"] if rows is None else rows) + source(name)


# ---------------------------------------------------------------------------------------------------------------------
# Tables


def main_table() -> str:
    return table(
        "main",
        [
            *PRODUCT,
            ("torch fp32", seconds("torch")),
            ("mm32", seconds("mm32")),
            ("mm32 : torch (95 %)", speedup("mm32")),
            ("torch TF32", seconds("torch-tf32")),
            ("error torch", error("torch")),
            ("error mm32", error("mm32")),
            ("error TF32", error("torch-tf32")),
        ],
    )


def shapes_table() -> str:
    return table(
        "shapes",
        [
            ("M × K × N", size),
            ("torch fp32", seconds("torch")),
            ("mm32", seconds("mm32")),
            ("kernel", kernel),
            ("mm32 : torch (95 %)", speedup("mm32")),
            ("torch TF32", seconds("torch-tf32")),
            ("error torch", error("torch")),
            ("error mm32", error("mm32")),
        ],
    )


def tf32_table() -> str:
    def ratio(row: Row) -> str:
        torchs, ours = (row["results"][name]["seconds"] for name in ("torch-tf32", "mm32-tf32"))
        return f"{torchs / ours:.2f}"

    return table(
        "main",
        [
            *PRODUCT,
            ("torch TF32", seconds("torch-tf32")),
            ("mm32 `tf32`", seconds("mm32-tf32")),
            ("mm32 : torch TF32", ratio),
            ("error torch TF32", error("torch-tf32")),
            ("error mm32 `tf32`", error("mm32-tf32")),
        ],
    )


def packed_table() -> str:
    return table(
        "main",
        [
            *PRODUCT,
            ("torch fp32", seconds("torch")),
            ("mm32", seconds("mm32")),
            ("mm32, B packed beforehand", seconds("mm32-packed")),
            ("packed : torch (95 %)", speedup("mm32-packed")),
            ("error mm32", error("mm32")),
            ("error packed", error("mm32-packed")),
        ],
    )


def errors_table() -> str:
    def both(name: str) -> Cell:
        return lambda row: f"{row['results'][name]['error']:.1e} / {row['results'][name]['gauge']:.1f}"

    return table(
        "main",
        [
            *PRODUCT,
            ("torch fp32", both("torch")),
            ('mm32 "fp32"', both("mm32")),
            ("mm32 simt", both("simt")),
            ("torch TF32", both("torch-tf32")),
            ('mm32 "tf32"', both("mm32-tf32")),
        ],
    )


def ladder_table() -> str:
    """A line for each rung, slowest first; the fastest in each layout in bold."""
    rows = load("ladder")["rows"]

    def in_layout(row: Row) -> tuple[str, Cell]:
        fastest = min(r["seconds"] for r in row["results"].values())

        def cell(rung: Row) -> str:
            seconds = row["results"][rung["name"]]["seconds"]
            return f"**{time(seconds)}**" if seconds == fastest else time(seconds)

        return LAYOUT[row["layout"]], cell

    rungs = []
    for name in rows[0]["results"]:
        results = [row["results"][name] for row in rows]
        mean = summary.geometric_mean([r["speedup"] for r in results])
        rungs.append({"name": name, "speed": mean, "error": max(r["error"] for r in results)})
    columns = [
        ("rung", lambda rung: f"`{rung['name']}`" if rung["name"] != "torch" else "torch fp32"),
        *map(in_layout, rows),
        ("speed, torch = 1", lambda rung: f"{rung['speed']:.3g}"),
        ("largest error", lambda rung: f"{rung['error']:.1e}"),
    ]
    return table("ladder", columns, sorted(rungs, key=lambda rung: rung["speed"]))


def ieee_table() -> str:
    return table(
        "ieee",
        [
            CASE,
            ("torch fp32", short("torch")),
            ("simt", short("simt")),
            ("simt : torch (95 %)", speedup("simt")),
            ("error torch", error("torch")),
            ("error simt", error("simt")),
        ],
    )


def host_table() -> str:
    (row,) = load("host")["rows"]
    one = row["results"]["launch"]["seconds"]
    names = {"torch": "torch.matmul", "enabled": "torch.matmul, mm32 on", "launch": "one launch alone"}

    def micro(seconds: float) -> str:
        return f"{seconds * 1e6:.1f} µs"

    return table(
        "host",
        [
            ("call", lambda r: r["name"]),
            ("host time", lambda r: micro(r["seconds"])),
            ("launches", lambda r: str(r["launches"])),
            ("beside them", lambda r: micro(r["seconds"] - r["launches"] * one)),
        ],
        ({"launches": 1, "name": names.get(name, f"`{name}`"), **r} for name, r in row["results"].items()),
    )


def exports_table() -> str:
    rows = load("exports")["rows"]

    def verdict(name: str) -> Cell:
        return lambda row: Verdict[row["results"][name]["verdict"]].value.lower()

    problem = ("problem", lambda row: f"matmul_{row['case']}")
    return table("exports", [problem, *((name, verdict(name)) for name in rows[0]["results"])])


def models_table() -> str:
    return programs.table(load("models")["rows"]) + source("models")


def programs_table() -> str:
    return programs.table(load("programs")["rows"]) + programs.summed_up(load("programs")) + source("programs")


def families_table() -> str:
    """The families of the record's first shape, kind by kind, and a line for each further shape."""
    first, *further = families.by_shape(load("families")["rows"]).values()

    def over_torch(row: Row) -> str:
        return f"{row['results']['torch-tf32']['speedup']:.2f}"

    def errors(name: str) -> Cell:
        return lambda row: families.both_errors(row["results"][name])

    columns = (
        ("family", lambda row: f"`{row['family']}`"),
        ("what", lambda row: row["what"]),
        ("torch", seconds("torch")),
        ("mm32", seconds("mm32")),
        ("mm32 : torch (95 %)", speedup("mm32")),
        ("TF32 : torch", over_torch),
        ("error torch", errors("torch")),
        ("error mm32", errors("mm32")),
        ("computed by", families.computed_by),
    )
    parts = [f"{families_line(rows)}\n" for rows in (first, *further)]
    for kind, what in families.KINDS.items():
        if of_kind := [row for row in first if row["kind"] == kind]:
            parts.append(f"**{what}**\n\n{grid(columns, of_kind)}")
    return "\n".join(parts) + source("families")


def families_line(rows: list[Row]) -> str:
    """Speed over the families of one shape, and of which the errors are larger than promised."""
    ((shape, means),) = families.geometric_means(rows).items()
    (lowest,) = summary.worst(rows, count=1)
    broken = ", ".join(f"`{row['family']}`" for row in rows if not row["keeps"])
    return (
        f"{shape.replace('x', ' × ').replace(' batch', ', batch')}, {len(rows)} families: geometric mean of mm32 : torch "
        f"**{means['mm32']:.2f}**, of TF32 : torch {means['torch-tf32']:.2f}; lowest mm32 : torch "
        f"{lowest['results']['mm32']['speedup']:.2f} (`{lowest['family']}`). "
        + (f"The promise is broken by {broken}." if broken else "The promise holds for all of them.")
    )


def auto_table() -> str:
    """What the planner's choices come to over the set "auto", and its ten lowest speedups."""
    if not (RESULTS / CARD / "auto.json").exists():
        return "No record of this set is here: `python benchmarks/record.py auto` makes one.\n"
    rows = [row for row in load("auto")["rows"] if "mm32" in row["results"]]
    speedups = [row["results"]["mm32"]["speedup"] for row in rows]
    ahead = sum(s >= 1 for s in speedups)
    poor = sum(ratio > 1.1 for _, ratio in map(summary.choice, rows))

    def over_torch(name: str) -> Cell:
        return lambda row: f"{row['results'][name]['speedup']:.2f}" if name in row["results"] else "–"

    lowest = table(
        "auto",
        [
            CASE,
            ("kernel", kernel),
            ("torch fp32", short("torch")),
            ("mm32", short("mm32")),
            ("mm32 : torch (95 %)", speedup("mm32")),
            ("simt : torch", over_torch("simt")),
            ("tensorcore : torch", over_torch("tensorcore")),
            ("error torch", error("torch")),
            ("error mm32", error("mm32")),
        ],
        summary.worst(rows),
    )
    return (
        f"{len(rows)} products: geometric mean of mm32 : torch **{summary.geometric_mean(speedups):.2f}**, {ahead} of them at "
        f"least as fast as torch; in {poor} a kernel that was not chosen is faster by more than a tenth. The ten lowest:\n\n"
        + lowest
    )


def front_table() -> str:
    return overviews.front(load("main"), load("shapes"), load("models")) + source("main", "shapes", "models")


def comparison_table() -> str:
    return overviews.comparison(load("main")) + source("main")


# ---------------------------------------------------------------------------------------------------------------------
# Pictures


def shown(name: str) -> Callable[[], str]:
    """What shows a picture: the file for the reader's theme. In a page, not in a picture, is the link to the record."""

    def make() -> str:
        alt = PICTURES[name][2] if name in PICTURES else DIAGRAMS[name][1]
        below = ""
        if name in PICTURES:
            load(PICTURES[name][0])  # which it is drawn from
            path = f"benchmarks/results/{CARD}/{PICTURES[name][0]}.json"
            below = f"\nDrawn from [{path}](/{path}).\n"
        return (
            "<picture>\n"
            f'  <source media="(prefers-color-scheme: dark)" srcset="pictures/{name}-dark.svg">\n'
            f'  <img alt="{alt}" src="pictures/{name}-light.svg">\n'
            "</picture>\n" + below
        )

    return make


TABLES: dict[str, Callable[[], str]] = {
    "front": front_table,
    "comparison": comparison_table,
    "hardware": overviews.hardware,
    "main": main_table,
    "shapes": shapes_table,
    "small": lambda: grouped.small(load, source),
    "random": lambda: grouped.at_random(load, source),
    "first-calls": lambda: grouped.first_calls(load, source),
    "two-cards": lambda: grouped.several_cards(load, source),
    "estimated-cards": lambda: grouped.estimated_cards(load, source),
    "packed": packed_table,
    "tf32": tf32_table,
    "errors": errors_table,
    "ladder": ladder_table,
    "models": models_table,
    "programs": programs_table,
    "families": families_table,
    "auto": auto_table,
    "ieee": ieee_table,
    "host": host_table,
    "exports": exports_table,
    "kernelbench": lambda: verdicts.kernelbench(load, source),
    "workspace": lambda: grouped.workspace(load, source),
    "corpus": lambda: verdicts.corpus(load, source),
    "batch": lambda: verdicts.batch(load, source),
    "power": lambda: verdicts.power(load, source),
    **{f"picture-{name}": shown(name) for name in (*PICTURES, *DIAGRAMS)},
}


def filled(text: str, docs: str = "") -> str:
    """A page with its tables made from the records, or the word that there is no record; ValueError for a table that does not
    exist. `docs` is the way from the page to docs/, where the pictures' folder is."""

    def make(found: re.Match[str]) -> str:
        if found[2] not in TABLES:
            raise ValueError(f"no table {found[2]!r}: there are {', '.join(TABLES)}")
        try:
            table = TABLES[found[2]]()
        except FileNotFoundError as error:
            table = f"Not measured yet: there is no {Path(error.filename).relative_to(ROOT)}.\n"
        return found[1] + table.replace('="pictures/', f'="{docs}pictures/') + found[3]

    return MARKED.sub(make, text)


def docs_from(page: str) -> str:
    """The way to docs/ from a page, by its path."""
    return "" if page.startswith("docs/") else "docs/"


def drawn() -> dict[Path, str]:
    """The text of every picture in docs/pictures/; of those whose record is missing, none."""
    made = {}
    for theme in THEMES:
        for name, (of, draw_it, _) in PICTURES.items():
            if (RESULTS / CARD / f"{of}.json").exists():
                made[ROOT / "docs" / "pictures" / f"{name}-{theme.name}.svg"] = draw_it(load(of), theme)
        for name, (draw_diagram, _) in DIAGRAMS.items():
            made[ROOT / "docs" / "pictures" / f"{name}-{theme.name}.svg"] = draw_diagram(theme)
    return made


def draw(check: bool) -> list[str]:
    """The pictures that were not drawn from the records as they are; without `check` they now are."""
    differing = []
    for path, text in drawn().items():
        if path.exists() and path.read_text() == text:
            continue
        differing.append(path.relative_to(ROOT).as_posix())
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return differing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    differing = []
    for name in PAGES:
        page = ROOT / name
        if not page.exists():
            continue
        before = page.read_text()
        after = filled(before, docs_from(name))
        if before != after:
            differing.append(name)
            if not check:
                page.write_text(after)
    differing += draw(check)
    for path in sorted(RESULTS.glob("*/*.json")):
        if old := record.stale(record.read(path)):
            scripts = {
                **{name: f"{name}.py" for name in ("models", "exports", "families")},
                "programs": "models.py --programs",
            }
            script = scripts.get(path.stem, "record.py")
            print(
                f"{path.relative_to(ROOT)} is older than the sources of {', '.join(old)}: run benchmarks/{script} again"
            )
    if differing:
        print(f"{'differ from their records' if check else 'rewritten'}: {', '.join(differing)}")
    return int(check and bool(differing))


if __name__ == "__main__":
    sys.exit(main())
