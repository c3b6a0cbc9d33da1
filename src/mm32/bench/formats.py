"""A record of products as CSV and as Markdown: a line for each case and implementation, the error beside each time."""

from __future__ import annotations

import csv
import io
from typing import Any

from mm32.bench.peers import BASELINE
from mm32.bench.summary import GAUGES, flops, held_down, outdated, subtitle, time

CASE = ("case", "m", "k", "n", "batch", "layout", "distribution", "bias", "activation", "rounds", "judged_rows")
RESULT = (
    "kernel", "seconds", "low", "high", "speedup", "speedup_low", "speedup_high", "error", "gauge",
    "clock_mhz", "power_w", "throttled", "joules",
)  # fmt: skip


def as_csv(record: dict[str, Any]) -> str:
    """Return a header and a line for each result, with the names of the record's fields. A cell is empty if something was not
    measured. Semicolons separate the reasons in `throttled`. What could not run has the reason in `unavailable`."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*CASE, "implementation", *RESULT, "unavailable"])
    for row in record["rows"]:
        case = [_cell(row.get(name)) for name in CASE]
        for name, result in row["results"].items():
            writer.writerow([*case, name, *(_cell(result.get(field)) for field in RESULT), ""])
        for name, why in row.get("unavailable", {}).items():
            writer.writerow([*case, name, *[""] * len(RESULT), why])
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, list):
        return ";".join(value)
    return "" if value is None else repr(value) if isinstance(value, float) else value


def as_markdown(record: dict[str, Any]) -> str:
    """Return a table, and below it what its errors are, where it was measured, and whether with the present kernels. Clock, power
    and energy have columns if they were read."""
    results = [result for row in record["rows"] for result in row["results"].values()]
    clock, energy = (any(field in result for result in results) for field in ("clock_mhz", "joules"))
    heads = ["M×K×N, layout, data", "", "time", "TFLOP/s", f"× {BASELINE} (95 %)", "error", "error/u"]
    heads += ["SM clock", "power"] * clock + ["energy a call"] * energy
    lines = [heads, ["---"] * 2 + ["--:"] * (len(heads) - 2)]
    for row in record["rows"]:
        for name, r in row["results"].items():
            cells = [row["case"], name + (f" ({r['kernel']})" if name.startswith("mm32") else ""), time(r["seconds"])]
            cells += [f"{flops(row) / r['seconds'] * 1e-12:.3g}"]
            cells += [
                f"{r['speedup']:.2f} ({r['speedup_low']:.2f}–{r['speedup_high']:.2f})" if name != BASELINE else ""
            ]
            cells += [f"{r['error']:.1e}", f"{r['gauge']:.1f}"]
            if clock:
                why = f" ↓ {', '.join(r['throttled'])}" if r.get("throttled") else ""
                cells += [f"{r['clock_mhz']:.0f} MHz{why}" if "clock_mhz" in r else ""]
                cells += [f"{r['power_w']:.0f} W" if "power_w" in r else ""]
            if energy:
                cells += ["" if r.get("joules") is None else f"{r['joules']:.3g} J"]
            lines.append(cells)
        for name, why in row.get("unavailable", {}).items():
            lines.append([row["case"], f"{name}: not available: {why}", *[""] * (len(heads) - 2)])
    table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    below = [GAUGES.replace("|", "\\|"), held_down(record), subtitle(record), outdated(record)]
    return "\n\n".join([table, *filter(None, below)]) + "\n"
