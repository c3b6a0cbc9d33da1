"""The columns of the tables that tables.py makes: a head, and the cell below it for a row of a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mm32.bench import summary

Row = dict[str, Any]
Cell = Callable[[Row], str]
Load = Callable[[str], dict[str, Any]]  # a record by its name
Source = Callable[..., str]  # the line that names the records of a table
LAYOUT = {"tt": "`A.T @ B.T`", "nt": "`A @ B.T`", "tn": "`A.T @ B`", "nn": "`A @ B`"}


def time(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms" if seconds < 1 else f"{seconds:.2f} s"


def markdown(heads: Sequence[str], lines: Iterable[Iterable[str]]) -> str:
    """Return the Markdown of a table of texts."""
    first, *others = (f"| {' | '.join(line)} |" for line in (heads, *lines))
    return "\n".join([first, "|---" * len(heads) + "|", *others]) + "\n"


def grid(columns: Iterable[tuple[str, Cell]], rows: Iterable[Row]) -> str:
    """Return the Markdown of a table with a line for each row."""
    heads, cells = zip(*columns, strict=True)
    return markdown(heads, ([cell(row) for cell in cells] for row in rows))


def seconds(name: str) -> Cell:
    return lambda row: time(row["results"][name]["seconds"])


def short(name: str) -> Cell:
    """Return a cell for times from microseconds to seconds."""
    return lambda row: summary.time(row["results"][name]["seconds"])


def error(name: str) -> Cell:
    return lambda row: f"{row['results'][name]['error']:.1e}"


def speedup(name: str) -> Cell:
    """Return a cell for a speedup with its interval; it has a dash for what failed."""

    def cell(row: Row) -> str:
        r = row["results"][name]
        return f"**{r['speedup']:.2f}** ({r['speedup_low']:.2f}–{r['speedup_high']:.2f})" if "speedup" in r else "–"

    return cell


def product(row: Row) -> str:
    return LAYOUT[row["layout"]] + (" + bias, relu" if row["bias"] else "")


def size(row: Row) -> str:
    return f"{row['m']} × {row['k']} × {row['n']}" + (f", batch {row['batch']}" if row["batch"] > 1 else "")


def distribution(row: Row) -> str:
    return row["distribution"]


def kernel(row: Row) -> str:
    return row["results"]["mm32"]["kernel"]


PRODUCT: tuple[tuple[str, Cell], ...] = (("product", product), ("data", distribution))
CASE: tuple[str, Cell] = ("M × K × N, layout, data", lambda row: row["case"].replace("x", " × ", 2))
