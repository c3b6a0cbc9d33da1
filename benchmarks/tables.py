"""Rewrites the tables in README.md and docs/ from the records in benchmarks/results/: python benchmarks/tables.py [--check].

A table stands between `<!-- table: NAME -->` and `<!-- end table -->`. With --check nothing is written: exit 1 if a table
differs from its records, and a line for every record that is older than the kernels it speaks of.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mm32.bench import record, report

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
CARD = "nvidia-h200"
PAGES = (
    "README.md",
    "docs/kernels.md",
    "docs/layers.md",
    "docs/models.md",
    "docs/numerics.md",
    "docs/verifying.md",
)
MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end table -->)", re.S)
LAYOUT = {"tt": "`A.T @ B.T`", "nt": "`A @ B.T`", "tn": "`A.T @ B`", "nn": "`A @ B`"}


def load(name: str) -> dict[str, Any]:
    return record.read(RESULTS / CARD / f"{name}.json")


def time(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms" if seconds < 1 else f"{seconds:.2f} s"


def source(name: str) -> str:
    """The line under a table: where and when it was measured."""
    made = load(name)
    e = made["environment"]
    old = record.stale(made)
    note = f" **Measured before the latest change to {', '.join(old)}.**" if old else ""
    return (
        f"\n{e['card']}, driver {e['driver']}, torch {e['torch']}, {made['made'][:10]}; "
        f"[record](/benchmarks/results/{CARD}/{name}.json).{note}\n"
    )


def speedup(result: dict[str, Any]) -> str:
    return f"**{result['speedup']:.2f}** ({result['speedup_low']:.2f}–{result['speedup_high']:.2f})"


def product(row: dict[str, Any]) -> str:
    return LAYOUT[row["layout"]] + (" + bias, relu" if row["bias"] else "")


def main_table() -> str:
    lines = [
        "| product | data | torch fp32 | mm32 | mm32 : torch (95 %) | torch TF32 | error torch | error mm32 | error TF32 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in load("main")["rows"]:
        r = row["results"]
        lines.append(
            f"| {product(row)} | {row['distribution']} | {time(r['torch']['seconds'])} | {time(r['mm32']['seconds'])} | "
            f"{speedup(r['mm32'])} | {time(r['torch-tf32']['seconds'])} | {r['torch']['error']:.1e} | "
            f"{r['mm32']['error']:.1e} | {r['torch-tf32']['error']:.1e} |"
        )
    return "\n".join(lines) + "\n" + source("main")


def shapes_table() -> str:
    lines = [
        "| M × K × N | torch fp32 | mm32 | kernel | mm32 : torch (95 %) | torch TF32 | error torch | error mm32 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in load("shapes")["rows"]:
        r = row["results"]
        size = f"{row['m']} × {row['k']} × {row['n']}" + (f", batch {row['batch']}" if row["batch"] > 1 else "")
        lines.append(
            f"| {size} | {time(r['torch']['seconds'])} | {time(r['mm32']['seconds'])} | {r['mm32']['kernel']} | "
            f"{speedup(r['mm32'])} | {time(r['torch-tf32']['seconds'])} | {r['torch']['error']:.1e} | "
            f"{r['mm32']['error']:.1e} |"
        )
    return "\n".join(lines) + "\n" + source("shapes")


def tf32_table() -> str:
    lines = [
        "| product | data | torch TF32 | mm32 `tf32` | mm32 : torch TF32 | error torch TF32 | error mm32 `tf32` |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in load("main")["rows"]:
        r = row["results"]
        ratio = r["torch-tf32"]["seconds"] / r["mm32-tf32"]["seconds"]
        lines.append(
            f"| {product(row)} | {row['distribution']} | {time(r['torch-tf32']['seconds'])} | "
            f"{time(r['mm32-tf32']['seconds'])} | {ratio:.2f} | {r['torch-tf32']['error']:.1e} | {r['mm32-tf32']['error']:.1e} |"
        )
    return "\n".join(lines) + "\n" + source("main")


def packed_table() -> str:
    lines = [
        "| product | data | torch fp32 | mm32 | mm32, B packed beforehand | packed : torch (95 %) | error mm32 | error packed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in load("main")["rows"]:
        r = row["results"]
        lines.append(
            f"| {product(row)} | {row['distribution']} | {time(r['torch']['seconds'])} | {time(r['mm32']['seconds'])} | "
            f"{time(r['mm32-packed']['seconds'])} | {speedup(r['mm32-packed'])} | {r['mm32']['error']:.1e} | "
            f"{r['mm32-packed']['error']:.1e} |"
        )
    return "\n".join(lines) + "\n" + source("main")


def errors_table() -> str:
    names = {
        "torch": "torch fp32",
        "mm32": 'mm32 "fp32"',
        "simt": "mm32 simt",
        "torch-tf32": "torch TF32",
        "mm32-tf32": 'mm32 "tf32"',
    }
    lines = ["| product | data | " + " | ".join(names.values()) + " |", "|---" * (len(names) + 2) + "|"]
    for row in load("main")["rows"]:
        cells = [f"{row['results'][n]['error']:.1e} / {row['results'][n]['gauge']:.1f}" for n in names]
        lines.append(f"| {product(row)} | {row['distribution']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n" + source("main")


def ladder_table() -> str:
    rows = load("ladder")["rows"]
    names = list(rows[0]["results"])
    lines = ["| layout | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for row in rows:
        cells = [
            f"{time(r['seconds'])}<br>×{r['speedup']:.3g}, error {r['error']:.1e}" for r in row["results"].values()
        ]
        lines.append(f"| {LAYOUT[row['layout']]} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n" + source("ladder")


def models_table() -> str:
    lines = [
        "| model | torch fp32 | mm32 | mm32 : torch (95 %) | torch TF32 | products by mm32 | error of | torch | mm32 | TF32 |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in load("models")["rows"]:
        fp32, ours, tf32 = (row["results"][name] for name in ("torch", "mm32", "torch-tf32"))
        errors = [
            " <br> ".join("–" if "failed" in r else f"{r['errors'][quantity]:.1e}" for quantity in fp32["errors"])
            for r in (fp32, ours, tf32)
        ]
        times = [f"fails: {r['failed']}" if "failed" in r else time(r["seconds"]) for r in (fp32, ours, tf32)]
        ratio, taken = "–", "–"
        if "failed" not in ours:
            ratio, count = speedup(ours), sum(ours["kernels"].values())
            taken = f"{count} of {count + sum(ours['left to torch'].values())}, {ours['careful']} careful"
        lines.append(
            f"| **{row['case']}**: {row['what']} | {times[0]} | {times[1]} | {ratio} | {times[2]} | {taken} | "
            f"{' <br> '.join(fp32['errors'])} | {' | '.join(errors)} |"
        )
    return "\n".join(lines) + "\n" + source("models")


def auto_table() -> str:
    """What the planner's choices come to over the set "auto", and its ten lowest speedups."""
    if not (RESULTS / CARD / "auto.json").exists():
        return "No record of this set is here: `python benchmarks/record.py auto` makes one.\n"
    rows = [row for row in load("auto")["rows"] if "mm32" in row["results"]]
    speedups = [row["results"]["mm32"]["speedup"] for row in rows]
    choices = [report.choice(row) for row in rows]
    ahead, poor = sum(s >= 1 for s in speedups), sum(ratio > 1.1 for _, ratio in choices)
    lines = [
        f"{len(rows)} products: geometric mean of mm32 : torch **{report.geometric_mean(speedups):.2f}**, {ahead} of them at "
        f"least as fast as torch; in {poor} a kernel that was not chosen is faster by more than a tenth. The ten lowest:",
        "",
        "| M × K × N, layout, data | kernel | torch fp32 | mm32 | mm32 : torch (95 %) | simt : torch | tensorcore : torch "
        "| error torch | error mm32 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in report.worst(rows):
        r = row["results"]
        other = " | ".join(f"{r[name]['speedup']:.2f}" if name in r else "–" for name in ("simt", "tensorcore"))
        lines.append(
            f"| {row['case'].replace('x', ' × ', 2)} | {r['mm32']['kernel']} | {report.time(r['torch']['seconds'])} | "
            f"{report.time(r['mm32']['seconds'])} | {speedup(r['mm32'])} | {other} | {r['torch']['error']:.1e} | "
            f"{r['mm32']['error']:.1e} |"
        )
    return "\n".join(lines) + "\n" + source("auto")


TABLES: dict[str, Callable[[], str]] = {
    "main": main_table,
    "shapes": shapes_table,
    "packed": packed_table,
    "tf32": tf32_table,
    "errors": errors_table,
    "ladder": ladder_table,
    "models": models_table,
    "auto": auto_table,
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
    for path in sorted(RESULTS.glob("*/*.json")):
        if old := record.stale(record.read(path)):
            script = "models.py" if path.stem == "models" else "record.py"
            print(
                f"{path.relative_to(ROOT)} is older than the sources of {', '.join(old)}: run benchmarks/{script} again"
            )
    if differing:
        print(f"{'differ from their records' if check else 'rewritten'}: {', '.join(differing)}")
    return int(check and bool(differing))


if __name__ == "__main__":
    sys.exit(main())
