"""A record as one figure: speed under the card's roofs, and speed against error.

On the left is a roofline (Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for multicore
architectures", CACM 52(4), 2009): 2·M·N·K / time over FLOP per byte, each operand and the result moved once. On the right is the
speed relative to torch over the normwise error. Needs matplotlib; drawn without pyplot, so it needs no display and has no global
state.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mm32.bench.peers import BASELINE, IMPLEMENTATIONS
from mm32.bench.summary import Row, flops, outdated, subtitle
from mm32.plan import card as cards

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY = "0.45"

# Okabe and Ito's palette, which the colour-blind can tell apart (jfly.uni-koeln.de/color); markers differ too.
STYLES: dict[str, tuple[str, str]] = {
    "torch": ("#000000", "o"),
    "torch-tf32": ("#56B4E9", "s"),
    "triton-tf32x3": ("#009E73", "D"),
    "mm32": ("#D55E00", "*"),
    "mm32-packed": ("#D55E00", "h"),
    "mm32-ieee": ("#0072B2", "^"),
    "mm32-tf32": ("#CC79A7", "v"),
    "naive": ("#E69F00", "x"),
    "dot": ("#56B4E9", "+"),
    "tiled": ("#009E73", "p"),
    "simt": ("#0072B2", "P"),
    "mma": ("#E69F00", "d"),
    "direct": ("#009E73", "<"),
    "tensorcore": ("#CC79A7", "X"),
}


@dataclass(frozen=True)
class Roofs:
    """A card's ceilings: memory in bytes a second, fp32 multiply-adds and fp16 tensor cores in FLOP a second; None if unknown."""

    memory: float | None = None
    fma: float | None = None
    fp16: float | None = None


def roofs(environment: dict[str, Any]) -> Roofs:
    """Return the roofs of a record's card: from the planner's table if it has the card's name, else from the card's clocks."""
    device = environment.get("device", {})
    try:
        known = cards.named(environment["card"])
    except ValueError:
        pass
    else:
        return Roofs(known.memory, known.fp32, known.fp16_sustained or known.fp16)
    major, _, minor = device.get("capability", "").partition(".")
    clock, sms = device.get("clock"), device.get("multiprocessors")
    fma = cards.fp32_rate((int(major), int(minor)), sms, clock) if clock and sms and minor else None
    return Roofs(device.get("memory_rate"), fma)


def intensity(row: Row) -> float:
    """Return the FLOP per byte of a row's product, with operands and result moved once."""
    m, n, k = row["m"], row["n"], row["k"]
    return flops(row) / (4.0 * row["batch"] * (m * k + k * n + m * n))


def save(record: dict[str, Any], path: Path) -> list[str]:
    """Draw a record of products into a file of the format that its suffix names, and return what had to be left out. An SVG file
    has the record's date. Raises ImportError without matplotlib, ValueError for an unknown suffix or a record without results."""
    made, notes = figure(record)
    made.savefig(path, dpi=150, metadata={"Date": record["made"]} if path.suffix == ".svg" else None)
    return notes


def check(path: Path) -> None:
    """Check the file's suffix before anything is measured. Raises ImportError or ValueError, as `save` would."""
    from matplotlib.figure import Figure

    kinds = Figure().canvas.get_supported_filetypes()
    if path.suffix.lstrip(".") not in kinds:
        raise ValueError(f"{str(path)!r}: a plot is one of {', '.join(sorted(kinds))}, by the file's suffix")


def figure(record: dict[str, Any]) -> tuple[Figure, list[str]]:
    """Return the figure, and what had to be left out."""
    from matplotlib.figure import Figure

    rows = [row for row in record["rows"] if row["results"]]
    if not rows:
        raise ValueError("the record has no results to draw")
    present = {name for row in rows for name in row["results"]}
    names = [name for name in IMPLEMENTATIONS if name in present]
    made = Figure(figsize=(13, 7.2))
    made.subplots_adjust(left=0.065, right=0.985, top=0.84, bottom=0.165, wspace=0.45)
    title = textwrap.shorten(record["name"].replace(",", ", "), 60, placeholder=" …")
    made.text(0.02, 0.955, f"fp32 matrix multiplication: {title}", size=15, weight="bold")
    made.text(0.02, 0.915, subtitle(record), size=10, color=GREY)
    left, right = made.subplots(1, 2)
    notes = _roofline(left, rows, names, record["environment"]) + _errors(right, rows, names)
    below = [*notes, *filter(None, [outdated(record)])]
    made.text(0.02, 0.885, "; ".join(below), size=10, color=GREY)
    handles, labels = left.get_legend_handles_labels()
    legend = made.legend(handles, labels, loc="lower center", ncols=min(len(names), 6), frameon=False, fontsize=11)
    legend.set_in_layout(False)
    return made, notes


def _points(axes: Axes, rows: Sequence[Row], name: str, x: list[float], y: list[float]) -> None:
    colour, marker = STYLES[name]
    size = (90 if marker == "*" else 45) * (1.0 if len(rows) <= 30 else 0.6)
    width, edge = (1.6, "face") if marker in "x+" else (0.6, "white")  # those two are lines
    front = 3 + (name == "mm32")
    axes.scatter(
        x, y, s=size, c=colour, marker=marker, linewidths=width, edgecolors=edge, alpha=0.85, label=name, zorder=front
    )


def _results(rows: Sequence[Row], name: str) -> list[tuple[Row, dict[str, Any]]]:
    return [(row, row["results"][name]) for row in rows if name in row["results"]]


def _roofline(axes: Axes, rows: Sequence[Row], names: Sequence[str], environment: dict[str, Any]) -> list[str]:
    everything = [(intensity(row), flops(row) / r["seconds"] * 1e-12) for row in rows for r in row["results"].values()]
    known = roofs(environment)
    ceilings = [
        (known.fma and known.fma * 1e-12, "fp32 multiply-adds"),
        (known.fp16 and known.fp16 / 3e12, "three fp16 products"),
        (known.fp16 and known.fp16 * 1e-12, "one fp16 product"),
    ]
    shown = [(height, what) for height, what in ceilings if height]
    low = min(x for x, _ in everything) / 2
    high = max(x for x, _ in everything) * 2
    top = max([y for _, y in everything] + [height for height, _ in shown]) * 1.6
    if known.memory and shown:
        ridges = [height * 1e12 / known.memory for height, _ in shown]  # where memory's roof meets the others
        low, high = min(low, ridges[0] / 4), max(high, ridges[-1] * 4)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(min(y for _, y in everything) / 2, top)
    for name in names:
        found = _results(rows, name)
        rates = [flops(row) / r["seconds"] * 1e-12 for row, r in found]
        _points(axes, rows, name, [intensity(row) for row, _ in found], rates)
    for height, what in shown:
        start = max(low, height * 1e12 / known.memory) if known.memory else low
        axes.plot([start, high], [height, height], color=GREY, linewidth=1.1, zorder=1)
        label = f" {what}\n {height:.3g} TFLOP/s"  # beside the panel, where no point can lie on it
        axes.text(high, height, label, size=9, color=GREY, ha="left", va="center")
    if known.memory:
        _slope(axes, known.memory * 1e-12, low, shown[-1][0] / known.memory * 1e12 if shown else high)
    left_out = [
        what for what, value in (("memory rate", known.memory), ("fp32 peak", known.fma), ("fp16 rate", known.fp16))
        if value is None
    ]  # fmt: skip
    notes = [f"no roof for {', '.join(left_out)}: not known of {environment['card']}"] if left_out else []
    axes.set_title("Speed, under the card's roofs", loc="left", size=12)
    axes.set_xlabel("arithmetic intensity, FLOP / byte (operands and result moved once)", size=10)
    axes.set_ylabel("TFLOP/s (2·M·N·K·batch / time)", size=10)
    _ticks(axes)
    return notes


def _slope(axes: Axes, rate: float, low: float, end: float) -> None:
    """Draw the memory's roof, TFLOP/s = TB/s · FLOP/byte, with its label along it. The axes' limits must be final."""
    bottom, top = axes.get_ylim()
    start, end = max(low, bottom / rate), min(end, top / rate)
    if start >= end:  # all points lie under the flat roofs
        return
    axes.plot([start, end], [start * rate, end * rate], color=GREY, linewidth=1.1, zorder=1)
    a, b = axes.transData.transform([(start, start * rate), (end, end * rate)])
    angle = math.degrees(math.atan2(b[1] - a[1], b[0] - a[0]))
    at = math.sqrt(start * end)
    axes.text(
        at, at * rate * 1.08, f"memory, {rate:.3g} TB/s", size=9, color=GREY, rotation=angle, rotation_mode="anchor",
        ha="center", va="bottom",
    )  # fmt: skip


def _errors(axes: Axes, rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """Draw speed over error, as in the pictures of docs/."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    left_out = 0
    for name in names:
        results = [r for _, r in _results(rows, name)]
        found = [r for r in results if 0 < r["error"] < math.inf]
        left_out += len(results) - len(found)
        _points(axes, rows, name, [r["error"] for r in found], [r["speedup"] for r in found])
    axes.axhline(1.0, color=GREY, linewidth=1.1, zorder=1)
    axes.margins(0.08)
    axes.set_title("↖ faster and more accurate: upper left", loc="right", size=10, color=GREY)
    axes.set_title("Speed and error", loc="left", size=12)
    axes.set_xlabel("error ‖C − C64‖ / ‖C64‖", size=10)
    axes.set_ylabel(f"speed relative to {BASELINE} (its time / time)", size=10)
    _ticks(axes, error=True)
    return [f"{left_out} errors of 0, infinity or NaN are not drawn"] if left_out else []


def _ticks(axes: Axes, error: bool = False) -> None:
    """Put plain numbers on the axes: 1, 2 and 5 of each decade if there are few decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        form = "{:.0e}" if error and axis is axes.xaxis else "{:g}"
        subs = (1.0, 2.0, 5.0) if high / low < 3000 else (1.0,)
        axis.set_major_locator(LogLocator(subs=subs, numticks=30))
        axis.set_major_formatter(FuncFormatter(lambda value, _, form=form: form.format(value)))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(which="major", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
