"""Rows of a record for a person to read: as a line each, as a table, the slowest. Every time is shown with its error."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from mm32.bench.peers import BASELINE
from mm32.bench.record import stale
from mm32.plan import KERNELS

if TYPE_CHECKING:
    from rich.console import Group

Row = dict[str, Any]


# The fields that the table and the plots read from a row, from each of its results, and from the environment.
ROW = {"case", "m", "n", "k", "batch", "results"}
RESULT = {"seconds", "speedup", "speedup_low", "speedup_high", "error", "gauge", "kernel"}
ENVIRONMENT = {"card", "driver", "torch", "mm32"}


def is_of_products(record: dict[str, Any]) -> bool:
    """Return whether the record has what `table` reads: it is of products, not of models, exports or calls."""
    rows = record.get("rows")
    return (
        "made" in record
        and _has(record.get("environment"), ENVIRONMENT)
        and isinstance(rows, list)
        and all(_has(row, ROW) and isinstance(row["results"], dict) for row in rows)
        and all(_has(result, RESULT) for row in rows for result in row["results"].values())
    )


def _has(value: object, names: set[str]) -> bool:
    return isinstance(value, dict) and names <= value.keys()


def flops(row: Row) -> int:
    """Return the multiplications and additions of a row's product."""
    return int(2 * row["m"] * row["n"] * row["k"] * row["batch"])


def time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.4g} s"
    return f"{seconds * 1e3:.4g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.4g} µs"


def line(row: Row) -> str:
    """Return a row as one line: each time with its speedup over torch and both errors (as in GAUGES)."""
    cells = [
        f"{name} {time(r['seconds'])} ×{r['speedup']:.3f} ({r['error']:.1e}, {r['gauge']:.1f})"
        for name, r in row["results"].items()
    ]
    cells += [f"{name} not available: {why}" for name, why in row.get("unavailable", {}).items()]
    return f"{row['case']}: {'; '.join(cells)}"


def worst(rows: list[Row], name: str = "mm32", count: int = 10) -> list[Row]:
    """Return the rows with the lowest speedups of an implementation over torch, lowest first."""
    having = [row for row in rows if name in row["results"]]
    return sorted(having, key=lambda row: row["results"][name]["speedup"])[:count]


def choice(row: Row) -> tuple[str, float]:
    """Return the fastest of the kernels that were measured by name, and the ratio of the time of mm32's own choice to its."""
    others = {name: r for name, r in row["results"].items() if name in KERNELS}
    name, best = min(others.items(), key=lambda item: item[1]["seconds"])
    return name, row["results"]["mm32"]["seconds"] / best["seconds"]


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


GAUGES = "error: ‖C−C64‖/‖C64‖. error/u: the largest |C−C64|, in units of 2^-24·(|A||B| + |bias|)."


def subtitle(record: dict[str, Any]) -> str:
    """Return the card, versions and date of a record."""
    e = record["environment"]
    return f"{e['card']}, driver {e['driver']}, torch {e['torch']}, mm32 {e['mm32']}, {record['made']}"


def held_down(record: dict[str, Any]) -> str:
    """Return what the mark ↓ means, if a result has it; else why clock and power were not read, if they were not."""
    results = [result for row in record["rows"] for result in row["results"].values()]
    marked = [result["throttled"] for result in results if result.get("throttled")]
    if marked:
        why = ", ".join(sorted({reason for reasons in marked for reason in reasons}))
        return (
            f"↓: the card held its clocks down ({why}) while {len(marked)} of {len(results)} were measured. Compare those with "
            "others of their product, which ran in turn with them, not with other cards or days."
        )
    said = record.get("sensor", "")
    return f"Clock and power were not read: {said.removeprefix('none: ')}" if said.startswith("none: ") else ""


def outdated(made: dict[str, Any]) -> str:
    """Return a text that the record was not made with the present kernels, and what to do; "" if it was, or names no kernels."""
    old = stale(made) if {"kernels", "name"} <= made.keys() else []
    if not old:
        return ""
    return (
        f"Measured with other versions of {', '.join(old)} than this mm32 has: it does not say how fast those are. "
        "Run mm32 bench again."
    )


def table(record: dict[str, Any]) -> Group:
    """Return the record as a page for rich: for each case a line for each implementation, or why it could not run; then where it
    was measured, and whether with the present kernels. Clock, power and energy a call have columns if they were read."""
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table

    results = [result for row in record["rows"] for result in row["results"].values()]
    clock, energy = (any(field in result for result in results) for field in ("clock_mhz", "joules"))
    made = Table(box=None, pad_edge=False)
    made.add_column("M×K×N, layout, data")
    for title in (
        "time",
        "TFLOP/s",
        f"× {BASELINE} (95 %)",
        "error",
        "error/u",
        *["MHz", "W"] * clock,
        *["J"] * energy,
    ):
        made.add_column(title, justify="right", no_wrap=True)
    for row in record["rows"]:
        made.add_row(f"[bold]{escape(row['case'])}[/bold]")
        for name, r in row["results"].items():
            kernel = f" ({r['kernel']})" if name.startswith("mm32") else ""
            speed = f"×{r['speedup']:.2f} ({r['speedup_low']:.2f}–{r['speedup_high']:.2f})" if name != BASELINE else ""
            cells = [f"{flops(row) / r['seconds'] * 1e-12:.3g}", speed, f"{r['error']:.1e}", f"{r['gauge']:.1f}"]
            if clock:
                mark = "↓" if r.get("throttled") else ""
                cells += [f"{r['clock_mhz']:.0f}{mark}" if "clock_mhz" in r else ""]
                cells += [f"{r['power_w']:.0f}" if "power_w" in r else ""]
            if energy:
                cells += ["" if r.get("joules") is None else f"{r['joules']:.3g}"]
            made.add_row(f"  {name}{kernel}", time(r["seconds"]), *cells)
        for name, why in row.get("unavailable", {}).items():
            made.add_row(f"  {name} [dim]not available: {escape(why)}[/dim]")
    units = (
        "MHz: the median of the SM clock while it ran. W: the card's power as it reports it, an average over about a second, "
        "to which the other rows of the same product belong. " * clock
    )
    units += "J: energy for one call of many one after another, the idle card's share included." * energy
    below = [GAUGES, units.strip(), held_down(record), subtitle(record), outdated(record)]
    return Group(made, *(f"[dim]{escape(line)}[/dim]" for line in below if line))
