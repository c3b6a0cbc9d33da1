"""Charts of a report as inline SVG, each with a text alternative. They are 420 wide, so that letters can be read on a phone.

What they show comes from numbers alone. Colours and strokes come from the style sheet, by class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mm32.verify.text import in_units

from .safe import attribute, figure, superscript

WIDTH = 420
LEFT, RIGHT = 52, 12
MOST_ROUNDS = 200  # the most rounds that a chart shows


def _svg(height: float, said: str, marks: Sequence[str]) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label={attribute(said)}>'
        f"{''.join(marks)}</svg>"
    )


def bar(share: float, said: str) -> str:
    """A share of a bound as a bar; beyond the bound it is full, and red."""
    width = 0.0 if not share > 0 else min(1.0, share) * 96
    kind = "over" if not share <= 1 else "candidate"
    full = 96.0 if not share <= 1 else max(1.0, width) if width else 0.0
    return (
        f'<svg class="bar" viewBox="0 0 100 12" role="img" aria-label={attribute(said)}><rect class="frame" x="1" y="1" '
        f'width="98" height="10"/><rect class="{kind}" x="2" y="2" width="{full:.1f}" height="8"/></svg>'
    )


# ------------------------------------------------------------------------------------------------------ errors


def histogram(lowest: int, candidate: list[int], reference: list[int] | None, exact: tuple[int, int], odd: int) -> str:
    """Draw counts of entries by the exponent of their error over the bound, on a logarithmic axis. Bars are the candidate's, the
    outline the reference's, scaled to the same total. `exact`: entries without an error, of candidate and reference."""
    sampled = (sum(candidate) + exact[0] + odd) / max(1, sum(reference or []) + exact[1])
    reference = None if reference is None else [round(n * sampled) if n * sampled >= 1 else n for n in reference]
    exact = (exact[0], round(exact[1] * sampled) if reference is not None else 0)
    used = [i + lowest for i, n in enumerate(candidate) if n] + [i + lowest for i, n in enumerate(reference or []) if n]
    first, last = min([-6, *used]) - 1, max([1, *used]) + 1
    most = max([1, *candidate, *(reference or []), *exact, odd])
    top, bottom = 26.0, 190.0
    decades = max(1.0, math.log10(most) + 0.5)

    def y(count: float) -> float:
        return bottom - (bottom - top) * (math.log10(count) + 0.5) / (decades + 0.5) if count > 0 else bottom

    columns = last - first + 1 + (2 if any(exact) else 0) + (2 if odd else 0)
    step = (WIDTH - LEFT - RIGHT) / columns
    begin = LEFT + (2 * step if any(exact) else 0)

    def x(exponent: float) -> float:
        """Where a bin ends: errors of 2^exponent times the bound."""
        return begin + (exponent - first + 1) * step

    marks = []
    for decade in range(0, int(decades) + 1, 1 if decades < 5 else 2):
        marks.append(f'<path class="grid" d="M{LEFT} {y(10**decade):.1f}H{WIDTH - RIGHT}"/>')
        label = f"{10**decade}" if decade < 4 else f"10{superscript(decade)}"
        marks.append(f'<text x="{LEFT - 6}" y="{y(10**decade) + 4:.1f}" text-anchor="end">{label}</text>')
    for i, count in enumerate(candidate):
        if count:
            at = x(i + lowest - 1)
            kind = "over" if i + lowest > 0 else "candidate"
            marks.append(_box(at, y(count), step, bottom, kind))
    if reference is not None:
        path = "".join(
            f"V{y(n):.1f}H{x(i + lowest):.1f}" for i, n in enumerate(reference) if first <= i + lowest <= last
        )
        marks.append(f'<path class="outline reference" d="M{x(first - 1):.1f} {bottom}{path}V{bottom}"/>')
    if any(exact):
        marks.append(_box(LEFT, y(exact[0]), step, bottom, "candidate"))
        if reference is not None and exact[1]:
            marks.append(
                f'<path class="outline reference" d="M{LEFT} {bottom}V{y(exact[1]):.1f}h{step:.1f}V{bottom}"/>'
            )
        marks.append(f'<text x="{LEFT + step / 2:.1f}" y="{bottom + 16}" text-anchor="middle">0</text>')
    if odd:
        at = x(last) + step
        marks.append(_box(at, y(odd), step, bottom, "odd"))
        marks.append(f'<text x="{at + step / 2:.1f}" y="{bottom + 16}" text-anchor="middle">NaN</text>')
    every = next(n for n in (2, 4, 5, 10, 20) if (last - first) / n <= 6)
    for exponent in range(math.ceil(first / every) * every, last + 1, every):
        label = "1" if exponent == 0 else f"2{superscript(exponent)}"
        marks.append(f'<text x="{x(exponent):.1f}" y="{bottom + 16}" text-anchor="middle">{label}</text>')
    marks.append(f'<path class="axis" d="M{LEFT} {bottom}H{WIDTH - RIGHT}"/>')
    marks.append(f'<path class="bound" d="M{x(0):.1f} {top - 8}V{bottom}"/>')
    marks.append(f'<text x="{x(0):.1f}" y="{top - 13}" text-anchor="middle">the bound</text>')
    marks.append(
        f'<text class="name" x="{WIDTH - RIGHT}" y="{bottom + 34}" text-anchor="end">error of an entry : its bound →</text>'
    )
    marks.append(f'<text class="name" x="{LEFT}" y="12">entries</text>')
    wrong = sum(n for i, n in enumerate(candidate) if i + lowest > 0) + odd
    said = (
        f"Histogram of the errors of {sum(candidate) + exact[0] + odd} entries over their bound, logarithmic. "
        f"The candidate's most frequent errors are {_peak(candidate, lowest)}, {wrong} entries are beyond the bound"
    )
    if reference is not None:
        said += f"; the reference's most frequent are {_peak(reference, lowest)}"
    return _svg(bottom + 42, f"{said}.", marks)


def _box(x: float, y: float, width: float, bottom: float, kind: str) -> str:
    return f'<rect class="{kind}" x="{x + 0.5:.1f}" y="{y:.1f}" width="{max(1.0, width - 1):.1f}" height="{bottom - y:.1f}"/>'


def _peak(bins: list[int], lowest: int) -> str:
    if not any(bins):
        return "none"
    at = max(range(len(bins)), key=bins.__getitem__) + lowest
    return f"between 2^{at - 1} and 2^{at} of the bound"


# ------------------------------------------------------------------------------------------------------ times


def times(sides: dict[str, list[float]]) -> str:
    """Draw the seconds of a call in every round, a line for each side, whose name is a class of the style sheet. The axis begins
    at zero, unless the times differ much."""
    values = [t for rounds in sides.values() for t in rounds if math.isfinite(t) and t > 0]
    if not values:
        return ""
    low, high = min(values), max(values)
    scale = (
        _Scale(0.0, high * 1.08, 16, 170, False) if high / low < 30 else _Scale(low / 1.5, high * 1.5, 16, 170, True)
    )
    count = max(len(rounds) for rounds in sides.values())
    marks = scale.grid(in_units)
    for name, rounds in sides.items():
        marks.append(_line(rounds, count, scale, name))
    marks += _rounds(count, 170)
    ranges = []
    for name, rounds in sides.items():
        fine = [t for t in rounds if math.isfinite(t) and t > 0]
        ranges += [f"{name} from {in_units(min(fine))} to {in_units(max(fine))}"] if fine else []
    said = f"Seconds of a call in each of {count} rounds: {'; '.join(ranges)}"
    return _svg(208, f"{said}.", marks)


def ratios(values: list[float], low: float, high: float, middle: float, margin: float) -> str:
    """Draw reference over candidate in every round, the speedup `middle`, its interval as a band, and the margin around 1."""
    found = [v for v in values if math.isfinite(v) and v > 0]
    if not found:
        return ""
    edges = [*found, 1.0, *(v for v in (low, high) if math.isfinite(v) and v > 0)]
    margin = margin if math.isfinite(margin) and margin > 1 else 1.0
    least, most = min([*edges, 1 / margin]), max([*edges, margin])
    scale = _Scale(least / (most / least) ** 0.06, most * (most / least) ** 0.06, 16, 170, True)
    marks = []
    if math.isfinite(low) and math.isfinite(high):
        marks.append(_band(scale, low, high, "band"))
        marks.append(f'<path class="middle" d="M{LEFT} {scale.y(middle):.1f}H{WIDTH - RIGHT}"/>')
    if margin > 1:
        marks.append(_band(scale, 1 / margin, margin, "margin"))
    marks += scale.grid(lambda v: f"{v:.3g}×")
    marks.append(f'<path class="bound" d="M{LEFT} {scale.y(1):.1f}H{WIDTH - RIGHT}"/>')
    marks.append(_line(values, len(values), scale, "candidate"))
    marks += _rounds(len(values), 170)
    said = (
        f"Reference's time over the candidate's in each of {len(values)} rounds: from {figure(min(found))} to "
        f"{figure(max(found))}, speedup {figure(middle)}, its interval {figure(low)} to {figure(high)}, "
        f"margin {figure(margin)}."
    )
    return _svg(208, said, marks)


class _Scale:
    """A vertical axis from `top` to `bottom` of a chart, linear or logarithmic."""

    def __init__(self, low: float, high: float, top: float, bottom: float, log: bool):
        self.low, self.high, self.top, self.bottom, self.log = low, high, top, bottom, log
        if not self.high > self.low:
            self.low, self.high = self.low * 0.9, self.low * 1.1 or 1.0

    def y(self, value: float) -> float:
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return self.bottom - (self.bottom - self.top) * (at - low) / (high - low)

    def ticks(self) -> list[float]:
        if self.log and self.high / self.low > 8:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1,) if len(decades) > 4 else (1, 2, 5) if len(decades) < 4 else (1, 3)
            found = [k * 10.0**d for d in decades for k in steps]
        else:
            rough = (self.high - self.low) / 4
            base = 10 ** math.floor(math.log10(rough))
            step = next(k * base for k in (1, 2, 2.5, 5, 10) if k * base >= rough)
            found = [i * step for i in range(math.floor(self.low / step), math.ceil(self.high / step) + 1)]
        return [v for v in found if self.low <= v <= self.high]

    def grid(self, say: object) -> list[str]:
        assert callable(say)
        return [
            f'<path class="grid" d="M{LEFT} {self.y(v):.1f}H{WIDTH - RIGHT}"/>'
            f'<text x="{LEFT - 6}" y="{self.y(v) + 4:.1f}" text-anchor="end">{"0" if v == 0 else say(v)}</text>'
            for v in self.ticks()
        ]


def _at(i: int, count: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (i + 0.5) / count


def _line(values: list[float], count: int, scale: _Scale, kind: str) -> str:
    places = [(_at(i, count), scale.y(v)) for i, v in enumerate(values) if math.isfinite(v) and v > 0]
    path = "".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(places))
    size = 3 if count <= 60 else 1.5
    dots = "".join(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{size}"/>' for x, y in places)
    return f'<path class="line {kind}" d="{path}"/>{dots}'


def _band(scale: _Scale, low: float, high: float, kind: str) -> str:
    top, bottom = scale.y(high), scale.y(low)
    return f'<rect class="{kind}" x="{LEFT}" y="{top:.1f}" width="{WIDTH - LEFT - RIGHT}" height="{max(1.0, bottom - top):.1f}"/>'


def _rounds(count: int, bottom: float) -> list[str]:
    every = next(n for n in (1, 2, 5, 10, 20, 50) if count / n <= 10)
    marks = [f'<path class="axis" d="M{LEFT} {bottom}H{WIDTH - RIGHT}"/>']
    marks += [
        f'<text x="{_at(i - 1, count):.1f}" y="{bottom + 16}" text-anchor="middle">{i}</text>'
        for i in range(1, count + 1)
        if i % every == 0 or i == 1
    ]
    return [*marks, f'<text class="name" x="{WIDTH - RIGHT}" y="{bottom + 33}" text-anchor="end">round →</text>']


def key(*parts: tuple[str, str]) -> str:
    """Return the key above a chart as markup. `parts`: classes of the style sheet, each with what its colour means."""
    marks = "".join(
        f'<span><svg class="swatch" viewBox="0 0 14 14" aria-hidden="true"><rect class="{kind}" x="1" y="1" width="12" '
        f'height="12"/></svg> {words}</span>'
        for kind, words in parts
    )
    return f'<p class="key">{marks}</p>'
