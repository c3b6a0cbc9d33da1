"""Rewrites the tables and pictures of README.md and docs/ from the records in benchmarks/results/: python benchmarks/tables.py.

A table stands between `<!-- table: NAME -->` and `<!-- end table -->`. A picture is drawn again where its record is another; it
needs matplotlib. With --check nothing is written: exit 1 if a table or a picture differs from its record, and a line for every
record that is older than the kernels it speaks of.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mm32.bench import families, models, record, summary
from mm32.verify import Verdict

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
CARD = "nvidia-h200"
PAGES = (
    "README.md",
    "docs/families.md",
    "docs/kernels.md",
    "docs/layers.md",
    "docs/models.md",
    "docs/numerics.md",
    "docs/verifying.md",
)
PICTURES = {"docs/families.svg": "families"}  # file -> record
MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end table -->)", re.S)
Row = dict[str, Any]
Cell = Callable[[Row], str]
LAYOUT = {"tt": "`A.T @ B.T`", "nt": "`A @ B.T`", "tn": "`A.T @ B`", "nn": "`A @ B`"}


def load(name: str) -> dict[str, Any]:
    return record.read(RESULTS / CARD / f"{name}.json")


def time(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms" if seconds < 1 else f"{seconds:.2f} s"


def source(name: str) -> str:
    """The line under a table: where and when it was measured, and the record's path, as a link from the repository's root."""
    made = load(name)
    e = made["environment"]
    old = record.stale(made)
    path = f"benchmarks/results/{CARD}/{name}.json"
    note = f" **Measured before the latest change to {', '.join(old)}.**" if old else ""
    return f"\n{e['card']}, driver {e['driver']}, torch {e['torch']}, {made['made'][:10]}; [{path}](/{path}).{note}\n"


# ---------------------------------------------------------------------------------------------------------------------
# Columns: a head, and what stands below it for a row of a record


def grid(columns: Iterable[tuple[str, Cell]], rows: Iterable[Row]) -> str:
    """The Markdown of a table, a line for each row."""
    heads, cells = zip(*columns, strict=True)
    first, *others = (f"| {' | '.join(line)} |" for line in (heads, *([cell(row) for cell in cells] for row in rows)))
    return "\n".join([first, "|---" * len(heads) + "|", *others]) + "\n"


def table(name: str, columns: Iterable[tuple[str, Cell]], rows: Iterable[Row] | None = None) -> str:
    """The Markdown of a table of record `name`, and where that is; of its rows, if no others are given."""
    return grid(columns, load(name)["rows"] if rows is None else rows) + source(name)


def seconds(name: str) -> Cell:
    return lambda row: time(row["results"][name]["seconds"])


def short(name: str) -> Cell:
    """For times from microseconds to seconds."""
    return lambda row: summary.time(row["results"][name]["seconds"])


def error(name: str) -> Cell:
    return lambda row: f"{row['results'][name]['error']:.1e}"


def speedup(name: str) -> Cell:
    """With its interval; a dash where it failed."""

    def cell(row: Row) -> str:
        r = row["results"][name]
        return f"**{r['speedup']:.2f}** ({r['speedup_low']:.2f}–{r['speedup_high']:.2f})" if "speedup" in r else "–"

    return cell


def product(row: Row) -> str:
    return LAYOUT[row["layout"]] + (" + bias, relu" if row["bias"] else "")


def distribution(row: Row) -> str:
    return row["distribution"]


def kernel(row: Row) -> str:
    return row["results"]["mm32"]["kernel"]


PRODUCT: tuple[tuple[str, Cell], ...] = (("product", product), ("data", distribution))
CASE: tuple[str, Cell] = ("M × K × N, layout, data", lambda row: row["case"].replace("x", " × ", 2))

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
    def size(row: Row) -> str:
        return f"{row['m']} × {row['k']} × {row['n']}" + (f", batch {row['batch']}" if row["batch"] > 1 else "")

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
    def rung(name: str) -> Cell:
        def cell(row: Row) -> str:
            r = row["results"][name]
            return f"{time(r['seconds'])}<br>×{r['speedup']:.3g}, error {r['error']:.1e}"

        return cell

    rows = load("ladder")["rows"]
    layout = ("layout", lambda row: LAYOUT[row["layout"]])
    return table("ladder", [layout, *((name, rung(name)) for name in rows[0]["results"])])


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
    names = {"torch": "torch.matmul", "launch": "one launch alone"}

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
    def step(name: str) -> Cell:
        def cell(row: Row) -> str:
            r = row["results"][name]
            return f"fails: {r['failed']}" if "failed" in r else time(r["seconds"])

        return cell

    def errors(name: str) -> Cell:
        def cell(row: Row) -> str:
            r, quantities = row["results"][name], row["results"]["torch"]["errors"]
            return " <br> ".join("–" if "failed" in r else f"{r['errors'][quantity]:.1e}" for quantity in quantities)

        return cell

    def taken(row: Row) -> str:
        ours = row["results"]["mm32"]
        if "failed" in ours:
            return "–"
        count = sum(ours["kernels"].values())
        others = {tier: calls for tier, calls in models.tiers(ours).items() if tier != "fp16x3"}
        taken = f"{count} of {count + sum(ours['left to torch'].values())}"
        return taken + (f"; {models.counted(others)}" if others else "")

    return table(
        "models",
        [
            ("model", lambda row: f"**{row['case']}**: {row['what']}"),
            ("torch fp32", step("torch")),
            ("mm32", step("mm32")),
            ("mm32 : torch (95 %)", speedup("mm32")),
            ("torch TF32", step("torch-tf32")),
            ("products by mm32", taken),
            ("error of", lambda row: " <br> ".join(row["results"]["torch"]["errors"])),
            ("torch", errors("torch")),
            ("mm32", errors("mm32")),
            ("TF32", errors("torch-tf32")),
        ],
    )


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


def families_picture() -> str:
    load("families")  # which it is drawn from
    return "![Speed relative to torch and normwise error of every family](families.svg)\n"


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


TABLES: dict[str, Callable[[], str]] = {
    "main": main_table,
    "shapes": shapes_table,
    "packed": packed_table,
    "tf32": tf32_table,
    "errors": errors_table,
    "ladder": ladder_table,
    "models": models_table,
    "families": families_table,
    "families-picture": families_picture,
    "auto": auto_table,
    "ieee": ieee_table,
    "host": host_table,
    "exports": exports_table,
}


def filled(text: str) -> str:
    """A page with its tables made from the records, or the word that there is no record; ValueError for a table that does not
    exist."""

    def make(found: re.Match[str]) -> str:
        if found[2] not in TABLES:
            raise ValueError(f"no table {found[2]!r}: there are {', '.join(TABLES)}")
        try:
            table = TABLES[found[2]]()
        except FileNotFoundError as error:
            table = f"Not measured yet: there is no {Path(error.filename).relative_to(ROOT)}.\n"
        return found[1] + table + found[3]

    return MARKED.sub(make, text)


def draw(check: bool) -> list[str]:
    """The pictures that were not drawn from the records as they are; without `check` they now are. One whose record is missing is
    left as it is."""
    differing = []
    for name, of in PICTURES.items():
        path = ROOT / name
        if not (RESULTS / CARD / f"{of}.json").exists():
            continue
        made = load(of)
        if path.exists() and f"<dc:date>{made['made']}</dc:date>" in path.read_text():
            continue
        differing.append(name)
        if not check:
            from mm32.bench import plots

            plots.save(made, path)
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
        after = filled(before)
        if before != after:
            differing.append(name)
            if not check:
                page.write_text(after)
    differing += draw(check)
    for path in sorted(RESULTS.glob("*/*.json")):
        if old := record.stale(record.read(path)):
            script = f"{path.stem}.py" if path.stem in ("models", "exports", "families") else "record.py"
            print(
                f"{path.relative_to(ROOT)} is older than the sources of {', '.join(old)}: run benchmarks/{script} again"
            )
    if differing:
        print(f"{'differ from their records' if check else 'rewritten'}: {', '.join(differing)}")
    return int(check and bool(differing))


if __name__ == "__main__":
    sys.exit(main())
