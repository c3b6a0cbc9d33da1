"""Rewrites the tables and pictures of README.md and docs/ from the records in benchmarks/results/: python benchmarks/tables.py.

A table is between `<!-- table: NAME -->` and `<!-- end table -->`. So is the text that shows a picture, whose NAME begins with
"picture-"; the pictures themselves are docs/pictures/NAME-light.svg and NAME-dark.svg (pictures.py, diagrams.py). Prints a line
for every record that is older than its kernels. With --check nothing is written, and the exit status is 1 if a table or a picture
differs from its record.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mm32.bench import record

sys.path.append(str(Path(__file__).parent))  # for when this file is loaded by its path
from rendering import grouped, overviews, products, programs, verdicts
from rendering.columns import Load, Source
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
    "docs/distributed-results.md",
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
# Name of the records that there are for each number of cards -> their script.
OVER_CARDS = {"scaling": "scaling", "parallel": "parallel_steps"}
SCRIPTS = {  # record -> the script in benchmarks/ that makes it; record.py makes the others
    **{name: f"{name}.py" for name in ("exports", "families", "first_call", "models", "workspace", *record.VERDICTS)},
    "programs": "models.py --programs",
    "batch-4": "batch.py",
    **{f"{name}-{cards}": f"{script}.py" for name, script in OVER_CARDS.items() for cards in (2, 4, 8)},
}
# Missing record -> the sentence in place of its table.
UNMEASURED = {f"{name}-4": "Four cards have not been measured." for name in (*OVER_CARDS, "batch")}
MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end table -->)", re.S)


def path_of(name: str) -> Path:
    """Return the path of the record that is shown: CARD's, or another card's if CARD has none.

    If CARD's is older than its kernels, another card's with no fewer rows is shown that is not older than its kernels. If each is
    older, the latest of all is shown.
    """
    kept = RESULTS / CARD / f"{name}.json"
    others = [path for path in sorted(RESULTS.glob(f"*/{name}.json")) if path != kept]
    if not kept.exists():
        return others[0] if others else kept
    ours = record.read(kept)
    if not record.stale(ours):
        return kept
    found = {path: made for path in others if len((made := record.read(path))["rows"]) >= len(ours["rows"])}
    fresh = [path for path, made in found.items() if not record.stale(made)]
    if fresh:
        return fresh[0]
    found = {kept: ours, **found}
    return max(found, key=lambda path: found[path]["made"])  # of several the first: CARD's


def written(name: str) -> str:
    """Return the path of the record that is shown, from the repository's root."""
    return f"benchmarks/results/{path_of(name).parent.name}/{name}.json"


def load(name: str) -> dict[str, Any]:
    return record.read(path_of(name))


def load_drawn(name: str) -> dict[str, Any]:
    """Return a picture's record. The record of two cards has that of four cards, if there is one, under "four"."""
    made = load(name)
    if name == "scaling-2" and path_of("scaling-4").exists():
        made["four"] = load("scaling-4")
    return made


def source(*names: str) -> str:
    """Return the line under a table: where and when it was measured, and links to the records from the repository's root.

    Records that differ in where or when follow one another.
    """
    lines: dict[str, list[str]] = {}
    for name in names:
        made, path = load(name), written(name)
        e = made["environment"]
        where = f"{e['card']}, driver {e['driver']}, torch {e['torch']}, {made['made'][:10]}"
        lines.setdefault(where, []).append(f"[{path}](/{path})")
    old = sorted({kernel for name in names for kernel in record.stale(load(name))})
    note = f" **Measured before the latest change to {', '.join(old)}.**" if old else ""
    return "\n" + " ".join(f"{where}; {', '.join(paths)}." for where, paths in lines.items()) + note + "\n"


def rendered(name: str) -> str:
    """Return the Markdown of a table, from its record."""
    return TABLES[name](load, source)


# ---------------------------------------------------------------------------------------------------------------------
# Pictures


def shown(name: str) -> Callable[[Load, Source], str]:
    """Return what shows a picture: the file for the reader's theme. The link to the record is in the page, not in the picture."""

    def make(load: Load, source: Source) -> str:
        alt = PICTURES[name][2] if name in PICTURES else DIAGRAMS[name][1]
        below = ""
        if name in PICTURES:
            of = [PICTURES[name][0]]  # the records that it is drawn from
            if "four" in load_drawn(of[0]):
                of.append("scaling-4")
            paths = [written(each) for each in of]
            below = f"\nDrawn from {' and '.join(f'[{path}](/{path})' for path in paths)}.\n"
        return (
            "<picture>\n"
            f'  <source media="(prefers-color-scheme: dark)" srcset="pictures/{name}-dark.svg">\n'
            f'  <img alt="{alt}" src="pictures/{name}-light.svg">\n'
            "</picture>\n" + below
        )

    return make


TABLES: dict[str, Callable[[Load, Source], str]] = {
    "front": overviews.front,
    "comparison": overviews.comparison,
    "hardware": overviews.hardware,
    "main": products.main,
    "shapes": products.shapes,
    "small": grouped.small,
    "random": grouped.at_random,
    "first-calls": grouped.first_calls,
    "two-cards": grouped.several_cards(2),
    "four-cards": grouped.several_cards(4),
    "parallel-2": programs.parallel(2),
    "parallel-4": programs.parallel(4),
    "estimated-cards": grouped.estimated_cards,
    "packed": products.packed,
    "tf32": products.tf32,
    "errors": products.errors,
    "ladder": products.ladder,
    "models": programs.models_table,
    "programs": programs.programs_table,
    "families": products.families,
    "families-shapes": products.families_shapes,
    "auto": products.auto,
    "ieee": products.ieee,
    "host": products.host,
    "exports": products.exports,
    "kernelbench": verdicts.kernelbench,
    "workspace": grouped.workspace,
    "corpus": verdicts.corpus,
    "batch": verdicts.batch("batch"),
    "batch-4": verdicts.batch("batch-4"),
    "power": verdicts.power,
    **{f"picture-{name}": shown(name) for name in (*PICTURES, *DIAGRAMS)},
}


def filled(text: str, docs: str = "") -> str:
    """Return a page with each table made from its record, or replaced by a sentence that it was not measured.

    `docs`: the path from the page to docs/, where the pictures' folder is. Raises ValueError for a table that does not exist.
    """

    def make(found: re.Match[str]) -> str:
        if found[2] not in TABLES:
            raise ValueError(f"no table {found[2]!r}: there are {', '.join(TABLES)}")
        try:
            table = rendered(found[2])
        except FileNotFoundError as error:
            table = f"{UNMEASURED.get(Path(error.filename).stem, 'This has not been measured.')}\n"
        return found[1] + table.replace('="pictures/', f'="{docs}pictures/') + found[3]

    return MARKED.sub(make, text)


def docs_from(page: str) -> str:
    """Return the path to docs/ from the page at this path."""
    return "" if page.startswith("docs/") else "docs/"


def drawn() -> dict[Path, str]:
    """Return the text of every picture in docs/pictures/, except those whose record is missing."""
    made = {}
    for theme in THEMES:
        for name, (of, draw_it, _) in PICTURES.items():
            if path_of(of).exists():
                made[ROOT / "docs" / "pictures" / f"{name}-{theme.name}.svg"] = draw_it(load_drawn(of), theme)
        for name, (draw_diagram, _) in DIAGRAMS.items():
            made[ROOT / "docs" / "pictures" / f"{name}-{theme.name}.svg"] = draw_diagram(theme)
    return made


def draw(check: bool) -> list[str]:
    """Return the pictures that differ from what the records give now; without `check`, redraw them."""
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
            script = SCRIPTS.get(path.stem, f"record.py {path.stem}")
            print(
                f"{path.relative_to(ROOT)} is older than the sources of {', '.join(old)}: run benchmarks/{script} again"
            )
    if differing:
        print(f"{'differ from their records' if check else 'rewritten'}: {', '.join(differing)}")
    return int(check and bool(differing))


if __name__ == "__main__":
    sys.exit(main())
