"""The pictures of README.md and docs/ that show records of benchmarks/results/, as SVG: `make tables` draws them (tables.py).

Each names the card, the versions, the day, the data and what is on its axes, and says if its record is older than the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import scaling_estimate as estimated

from mm32.bench import families as of_data
from mm32.bench import record
from mm32.bench.summary import flops

from .drawing import Canvas, Theme, text_width

Row = dict[str, Any]
Record = dict[str, Any]
NAMES = {"torch": "torch fp32", "torch-tf32": "torch TF32", "triton-tf32x3": "Triton tf32x3", "mm32": "mm32"}
MARKS = {"torch": "circle", "torch-tf32": "square", "triton-tf32x3": "diamond", "mm32": "star"}
NAMED_FAMILIES = 8  # the number of slowest families that have their names beside them
SQUARES = tuple(2**i for i in range(9, 15))


def head(canvas: Canvas, title: str, lines: Sequence[str], made: Record) -> float:
    """Draw the title, what was measured and where, and a warning if the record is old. Return the y below."""
    e = made["environment"]
    canvas.text(0, 20, title, 18, bold=True)
    y = 42.0
    for line in (*lines, f"{e['card']}, driver {e['driver']}, torch {e['torch']}, {made['made'][:10]}"):
        canvas.text(0, y, line, 13, canvas.theme.muted)
        y += 18
    if old := record.stale(made):
        canvas.text(
            0, y, f"Measured before the latest change to {', '.join(old)}.", 13, canvas.theme.warning, bold=True
        )
        y += 18
    return y


def height_of_head(lines: int, made: Record) -> float:
    return 42 + 18 * (lines + 1 + bool(record.stale(made)))


def span(values: Sequence[float], form: Callable[[float], str]) -> str:
    """Return the lowest and the highest value as text, or one value if both are written alike."""
    low, high = form(min(values)), form(max(values))
    return low if low == high else f"{low} to {high}"


def legend(canvas: Canvas, y: float, said: dict[str, str]) -> float:
    """Draw a line for each implementation: its mark, its name, and its text in `said`. Return the y below."""
    for name, text in said.items():
        canvas.mark(10, y - 5, MARKS[name], canvas.theme.colours[name])
        canvas.text(24, y, NAMES[name], 14, canvas.theme.colours[name], bold=True)
        canvas.text(142, y, text, 14)
        y += 21
    return y


class Chart:
    """A panel with axes: x on a logarithmic scale, y from 0 up."""

    LEFT, RIGHT = 60.0, 20.0

    def __init__(self, canvas: Canvas, top: float, bottom: float, x: tuple[float, float], y: float, ends: bool = False):
        """`x`: the x axis's range. `y`: the y axis's upper end. With `ends`, x = 0 and x = inf have places beside the x axis."""
        self.canvas, self.top, self.bottom, self.high = canvas, top, bottom, y
        self.low_x, self.high_x = map(math.log, x)
        gutter = 44.0 if ends else 0.0
        self.left, self.right = self.LEFT + gutter, canvas.width - self.RIGHT - gutter

    def x(self, value: float) -> float:
        if value == 0:
            return self.LEFT + 12
        if value == math.inf:
            return self.canvas.width - self.RIGHT - 12
        share = (math.log(value) - self.low_x) / (self.high_x - self.low_x)
        return self.left + share * (self.right - self.left)

    def y(self, value: float) -> float:
        return self.bottom - value / self.high * (self.bottom - self.top)

    def axes(self, x_ticks: Sequence[tuple[float, str]], x_label: str, y_label: str, step: float) -> None:
        canvas, theme = self.canvas, self.canvas.theme
        for i in range(round(self.high / step) + 1):
            y = self.y(i * step)
            canvas.line(self.LEFT, y, canvas.width - self.RIGHT, y, theme.muted if i == 0 else theme.line)
            canvas.text(self.LEFT - 7, y + 4.5, f"{i * step:g}", 13, theme.muted, "end")
        for value, text in x_ticks:
            at = self.x(value)
            canvas.line(at, self.top, at, self.bottom, theme.line)
            canvas.text(at, self.bottom + 19, text, 13, theme.muted, "middle")
        middle = (self.LEFT + canvas.width - self.RIGHT) / 2
        canvas.text(middle, self.bottom + 41, x_label, 14, anchor="middle")
        canvas.text(16, (self.top + self.bottom) / 2, y_label, 14, anchor="middle", turned=True)


def decades(values: Sequence[float]) -> list[float]:
    """Return powers of ten from below the least to above the greatest value."""
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [10.0**i for i in range(first, max(last, first + 1) + 1)]


def power(value: float) -> str:
    """Return a power of ten as text: 10ⁿ."""
    return "10" + str(round(math.log10(value))).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _step(high: float) -> float:
    """Return the step between lines of the y axis: 1, 2 or 5 times a power of ten, for four to eight lines."""
    return next(s * 10.0**d for d in range(-2, 6) for s in (1, 2, 5) if high / (s * 10.0**d) <= 8)


def _top(high: float) -> float:
    return math.ceil(high / _step(high)) * _step(high)


# ---------------------------------------------------------------------------------------------------------------------
# Speed against error


def speed_error(made: Record, theme: Theme) -> str:
    """Draw the record's products without an epilogue: each implementation's speed over its error."""
    rows = [row for row in made["rows"] if not row["bias"] and row["activation"] is None]
    names = [name for name in NAMES if any(name in row["results"] for row in rows)]
    shapes = sorted({f"{row['m']} × {row['k']} × {row['n']}" for row in rows})
    data = sorted({row["distribution"] for row in rows})
    layouts = {row["layout"] for row in rows}
    what = f"{', '.join(shapes)}, {len(layouts)} layouts, data: {' and '.join(f'torch.{name}' for name in data)}"
    results = {name: [(row, row["results"][name]) for row in rows if name in row["results"]] for name in names}
    below = height_of_head(1, made) + 21 * len(names)
    canvas = Canvas(below + 352, theme)
    y = head(canvas, "Speed against error", [what], made)
    said = {}
    for name, found in results.items():
        speeds, errors = [r["speedup"] for _, r in found], [r["error"] for _, r in found]
        said[name] = f"speed {span(speeds, '{:.2f}'.format)}, error {span(errors, '{:.1e}'.format)}"
    legend(canvas, y + 8, said)
    every = [r for found in results.values() for _, r in found]
    ticks = decades([r["error"] for r in every])
    top = _top(max(r["speedup"] for r in every) * 1.05)
    chart = Chart(canvas, below + 24, below + 296, (ticks[0], ticks[-1]), top)
    chart.axes(
        [(tick, power(tick)) for tick in ticks],
        "error ‖C − C64‖ / ‖C64‖; C64: float64's result",
        "speed, torch fp32 = 1",
        _step(top),
    )
    canvas.text(chart.left + 10, below + 44, "↖ faster, more accurate", 14, theme.muted)
    for name, found in results.items():
        for row, r in found:
            hollow = row["distribution"] != data[-1]
            canvas.mark(chart.x(r["error"]), chart.y(r["speedup"]), MARKS[name], theme.colours[name], hollow)
    if len(data) == 2:
        canvas.text(chart.right - 8, below + 44, f"filled: {data[1]}, hollow: {data[0]}", 13, theme.muted, "end")
    return canvas.svg(f"Speed against error of {', '.join(NAMES[name] for name in names)}: {what}")


# ---------------------------------------------------------------------------------------------------------------------
# Families of data


def families(made: Record, theme: Theme) -> str:
    """Draw every family of the record's first shape: speed over normwise error, the slowest with their names."""
    rows = next(iter(of_data.by_shape(made["rows"]).values()))
    names = [name for name in NAMES if name in rows[0]["results"]]
    what = f"{len(rows)} families of data, {of_data.shape(rows[0]).replace('x', ' × ')}"
    means = next(iter(of_data.geometric_means(made["rows"]).values()))
    below = height_of_head(1, made) + 21 * len(names)
    canvas = Canvas(below + 392, theme)
    y = head(canvas, "Speed and error, family by family", [what], made)
    said = {}
    for name in names:
        speed = span([row["results"][name]["speedup"] for row in rows], "{:.2f}".format)
        mean = f" (geometric mean {means[name]:.2f})" if name != "torch" else ""
        said[name] = f"speed {speed}{mean}, error {span([row['results'][name]['normwise'] for row in rows], _units)}"
    legend(canvas, y + 8, said)
    every = [row["results"][name] for row in rows for name in names]
    ticks = decades([r["normwise"] for r in every if 0 < r["normwise"] < math.inf])
    ends = [(math.inf, "∞")] if any(r["normwise"] == math.inf for r in every) else []
    top = _top(max(r["speedup"] for r in every) * 1.05)
    chart = Chart(canvas, below + 24, below + 336, (ticks[0], ticks[-1]), top, ends=True)
    chart.axes(
        [(0.0, "0"), *((tick, power(tick)) for tick in ticks), *ends],
        "error ‖C − C64‖ / ‖C64‖ in units of u = 2⁻²⁴", "speed, torch fp32 = 1", _step(top),
    )  # fmt: skip
    floor = chart.x(of_data.FLOOR)
    canvas.line(floor, chart.top, floor, chart.bottom, theme.muted, dashed=True)
    canvas.text(floor + 6, chart.top + 15, f"{of_data.FLOOR:g} u", 13, theme.muted)
    places: list[Box] = []
    for name in names:  # mm32 comes last, so its marks lie above
        for row in rows:
            r = row["results"][name]
            at = chart.x(r["normwise"]), chart.y(r["speedup"])
            canvas.mark(*at, MARKS[name], theme.colours[name], size=4 if name != "mm32" else 5)
            places.append((at[0] - 5, at[1] - 5, at[0] + 5, at[1] + 5))
    slowest = sorted(rows, key=lambda row: row["results"]["mm32"]["speedup"])[:NAMED_FAMILIES]
    for row in slowest:
        r = row["results"]["mm32"]
        _label(canvas, row["family"], chart.x(r["normwise"]), chart.y(r["speedup"]), places, chart)
    return canvas.svg(f"{what}: speed over normwise error of {', '.join(NAMES[name] for name in names)}")


def _units(error: float) -> str:
    return "∞" if error == math.inf else f"{error:.2g} u" if error < 100 else f"{error:.1e} u"


Box = tuple[float, float, float, float]  # left, top, right, bottom


def _label(canvas: Canvas, text: str, x: float, y: float, places: list[Box], chart: Chart) -> None:
    """Draw a label beside a point, where there is room, or nothing if there is none."""
    width = text_width(text, 12)
    for dx, dy, anchor in (
        (9, 4, "start"), (-9, 4, "end"), (0, -10, "middle"), (0, 19, "middle"), (9, -9, "start"), (9, 18, "start"),
        (-9, -9, "end"), (-9, 18, "end"),
    ):  # fmt: skip
        left = x + dx - {"start": 0, "middle": width / 2, "end": width}[anchor]
        box = (left, y + dy - 10, left + width, y + dy + 2)
        inside = box[0] > chart.LEFT and box[2] < canvas.width and box[3] < chart.bottom
        if inside and not any(_overlap(box, other) for other in places):
            places.append(box)
            canvas.text(x + dx, y + dy, text, 12, anchor=anchor)
            return


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


# ---------------------------------------------------------------------------------------------------------------------
# Squares


def squares(made: Record, theme: Theme) -> str:
    """Draw the rate of the record's squares over their side."""
    rows = [row for row in made["rows"] if row["m"] == row["n"] == row["k"] in SQUARES and row["batch"] == 1]
    rows.sort(key=lambda row: row["m"])
    names = [name for name in NAMES if all(name in row["results"] for row in rows)]
    data = f"M = N = K, row-major operands, data: torch.{rows[0]['distribution']}"
    below = height_of_head(1, made) + 21 * len(names)
    canvas = Canvas(below + 370, theme)
    y = head(canvas, f"Squares from {rows[0]['m']} to {rows[-1]['m']}", [data], made)
    said = {}
    for name in names:
        errors = [row["results"][name]["error"] for row in rows]
        speed = span([row["results"][name]["speedup"] for row in rows], "{:.2f}".format)
        said[name] = f"speed {speed}, error {span(errors, '{:.1e}'.format)}"
    legend(canvas, y + 8, said)

    def rate(row: Row, name: str) -> float:
        return flops(row) / row["results"][name]["seconds"] * 1e-12

    top = _top(max(rate(row, name) for row in rows for name in names) * 1.05)
    sides = rows[0]["m"] / 1.3, rows[-1]["m"] * 1.3
    chart = Chart(canvas, below + 24, below + 296, sides, top)
    chart.axes([(row["m"], str(row["m"])) for row in rows], "", "TFLOP/s (2·M·N·K / time)", _step(top))
    for name in names:
        points = [(chart.x(row["m"]), chart.y(rate(row, name))) for row in rows]
        canvas.path(points, theme.colours[name])
        for point in points:
            canvas.mark(*point, MARKS[name], theme.colours[name])
    for row in rows:
        speed = f"×{row['results']['mm32']['speedup']:.2f}"
        canvas.text(chart.x(row["m"]), chart.bottom + 38, speed, 13, theme.colours["mm32"], "middle", bold=True)
    canvas.text(
        (chart.left + chart.right) / 2,
        chart.bottom + 62,
        "side of the square; mm32's speed, torch fp32 = 1",
        14,
        anchor="middle",
    )
    return canvas.svg(f"TFLOP/s of squares: {', '.join(NAMES[name] for name in names)}")


# ---------------------------------------------------------------------------------------------------------------------
# Programs


def models(made: Record, theme: Theme) -> str:
    """Draw a step of each program: bars of speed, with the error of its first quantity."""
    rows = made["rows"]
    names = ("torch-tf32", "mm32")
    scale_to = max((r.get("speedup", 0) for row in rows for r in row["results"].values()), default=1)
    canvas = Canvas(height_of_head(1, made) + 26 + len(rows) * 76, theme)
    lines = ["a step of each: speed, torch fp32 = 1, and the error against float64 of what it is for"]
    y = head(canvas, "Whole programs", lines, made) + 10
    unit = 330 / scale_to
    for row in rows:
        results = row["results"]
        quantity, of_torch = next(iter(results["torch"]["errors"].items()))
        canvas.text(0, y + 12, row["case"], 15, bold=True)
        canvas.text(canvas.width - 8, y + 12, f"{quantity}: torch's error {of_torch:.1e}", 13, theme.muted, "end")
        for i, name in enumerate(reversed(names)):
            r, at = results[name], y + 20 + 23 * i
            canvas.text(0, at + 14, NAMES[name], 13, theme.colours[name], bold=True)
            if "failed" in r:
                canvas.text(92, at + 14, f"fails: {r['failed']}", 13)
                continue
            length = r["speedup"] * unit
            canvas.box(86, at, length, 18, theme.colours[name], round_=2)
            said = f"×{r['speedup']:.2f}, error {r['errors'][quantity]:.1e}"
            canvas.text(86 + max(length, unit) + 8, at + 14, said, 13)
        canvas.line(86 + unit, y + 17, 86 + unit, y + 64, theme.text, dashed=True)
        y += 76
    canvas.text(86 + unit, y + 2, "torch fp32", 13, anchor="middle")
    return canvas.svg("Speed of whole programs by mm32 and by torch's TF32, torch's fp32 = 1, with their errors")


# ---------------------------------------------------------------------------------------------------------------------
# Several cards

# placement -> its colour (an implementation's) and mark. Placements in MEASURED have no curve: with nothing sent, it would stay
# at 1, and the estimate knows no overlap.
PLACES = {
    "rows, B gathered": ("mm32", "star"),
    "grid": ("triton-tf32x3", "diamond"),
    "K": ("torch-tf32", "square"),
}
MEASURED = {"rows": ("torch", "circle"), "rows, B overlapped": ("mm32", "diamond")}
SIDES = (16384, 32768)  # K = N of the products whose measured shares are marked
SAID_OF_PLACES = {
    "rows, B gathered": "A by rows; B sharded, and gathered first",
    "grid": "both by rows and columns of a grid, gathered along it",
    "K": "both over K; the result all-reduced",
    "rows": "A by rows, B on every card; nothing is sent (measured only)",
    "rows, B overlapped": "B gathered while multiplying (measured only)",
}


def scaling(made: Record, theme: Theme) -> str:
    """Draw the share of the cards' own rates that is left by what is sent: estimated curves, and marks where it was measured."""
    parts, most = estimated.measured(made), 512
    side, rows_a_card = estimated.SIDE, estimated.ROWS
    errors = {
        name: span(
            [row["results"][name]["normwise"] for row in made["rows"] if name in row["results"]], "{:.1e}".format
        )
        for name in ("mm32", "torch")
    }
    records = [made, *([made["four"]] if "four" in made else [])]
    marked = {**PLACES, **MEASURED}
    shown = [
        row
        for each in records
        for row in each["rows"]
        if "alone" in row and row["case"]["sharded"] in marked and row["case"]["k"] == row["case"]["n"] in SIDES
    ]
    named = {**PLACES, **{place: MEASURED[place] for place in MEASURED if shown}}
    lines = [
        f"from what {made['environment']['cards']} cards measured: {parts.rate * 1e-12:.0f} TFLOP/s and "
        f"{parts.bandwidth * 1e-9:.0f} GB/s a card,",
        f"with error {errors['mm32']} (torch fp32 {errors['torch']});",
        f"assumed: hosts of {estimated.HOST}, {estimated.BETWEEN * 1e-9:.0f} GB/s a card between them, nothing overlapped",
    ]
    if "four" in made:
        e = made["four"]["environment"]
        lines.append(f"four cards: {e['card']}, driver {e['driver']}, torch {e['torch']}, {made['four']['made'][:10]}")
    below = height_of_head(len(lines), made) + 21 * (len(named) + 2)
    canvas = Canvas(below + 352, theme)
    y = head(canvas, "How far it should carry: a paper estimate", lines, made) + 8
    for place, (colour, mark) in named.items():
        canvas.mark(10, y - 5, mark, theme.colours[colour])
        canvas.text(24, y, place, 14, theme.colours[colour], bold=True)
        canvas.text(182, y, SAID_OF_PLACES[place], 14)
        y += 21
    for text, dashed in (
        (f"strong: {side}³ shared by all cards", False),
        (f"weak: {rows_a_card} rows for each card, K = N = {side // 2}", True),
    ):
        canvas.line(0, y - 5, 20, y - 5, theme.text, 2, dashed=dashed)
        canvas.text(24, y, text, 14)
        y += 21
    chart = Chart(canvas, below + 24, below + 296, (2 / 1.3, most * 1.3), 1.0)
    cards = [2**i for i in range(1, most.bit_length())]
    chart.axes([(p, str(p)) for p in cards], "cards", "share of the cards' own rates", 0.2)
    for place, (colour, _) in PLACES.items():
        for weak in (False, True):
            points = []
            for p in cards[place == "grid" :]:
                m, k = (rows_a_card * p, side // 2) if weak else (side, side)
                left = parts.seconds("rows", m, k, k, p) / parts.seconds(place, m, k, k, p)
                points.append((chart.x(p), chart.y(left)))
            canvas.path(points, theme.colours[colour], dashed=weak)
    for row in shown:
        colour, mark = marked[row["case"]["sharded"]]
        at = chart.x(row["case"]["cards"]), chart.y(estimated.share(row))
        canvas.mark(*at, mark, theme.colours[colour], hollow=row["case"]["growth"] == "weak")
    note = (
        f"marks: measured, K = N = {SIDES[0]} and {SIDES[1]}; filled: strong, hollow: weak"
        if shown
        else "no share has been measured yet"
    )
    canvas.text(chart.right, below + 12, note, 13, theme.muted, "end")
    return canvas.svg("Estimated share of the cards' own rates from 2 to 512 cards, by how the operands are sharded")


# file name -> record, the function that draws it, and the text in place of the picture
PICTURES: dict[str, tuple[str, Callable[[Record, Theme], str], str]] = {
    "speed-error": ("rivals", speed_error, "Speed against error of mm32 and others on a large product"),
    "families": ("families", families, "Speed relative to torch and normwise error of every family of data"),
    "squares": (
        "shapes",
        squares,
        "TFLOP/s of square products from 512 to 16384, with mm32's speed relative to torch fp32",
    ),
    "scaling": (
        "scaling-2",
        scaling,
        "Estimated share of the cards' own rates that is left by what is sent, from 2 to 512 cards",
    ),
    "models": ("models", models, "Speed of whole programs by mm32 and by TF32, torch fp32 = 1, with their errors"),
}
