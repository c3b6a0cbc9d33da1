"""The map of an output's errors: codes of picture.py as a PNG of a few kilobytes, inside an SVG that has the axes."""

from __future__ import annotations

import base64
import binascii
import math
import struct
import zlib
from typing import Any

from mm32.verify.judging.picture import BOUND, DIFFERS, SIDE, STEPS, STRIP

from .safe import attribute, figure, number

WIDTH = 420
WITHIN = ((0xE3, 0xEE, 0xF9), (0x6B, 0xAE, 0xD6), (0x08, 0x45, 0x94))  # colours, from little of the bound to all of it
BEYOND = ((0xFF, 0xC2, 0x4B), (0xF0, 0x60, 0x20), (0x7F, 0x00, 0x10))
NONE, ODD = (0xFF, 0xFF, 0xFF), (0xC5, 0x1B, 0xB5)
SPAN = 4 * STEPS  # the fewest codes of the scale on either side of the bound


class Map:
    """A checked map of one of the record's "outputs". Raises ValueError where it is no map."""

    def __init__(self, output: dict[str, Any]):
        try:
            self.down, self.across = (int(n) for n in output["cells"])
            self.high, self.wide = (int(n) for n in output["cell"])
            self.codes = base64.b64decode(output["map"], validate=True)
            self.shape = [int(n) for n in output["shape"]]
            self.split = int(output["split"])
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise ValueError(f"no map: {error}") from None
        if not 0 < self.down * self.across <= max(SIDE * SIDE, STRIP) or len(self.codes) != self.down * self.across:
            raise ValueError(f"a map of {self.down} x {self.across} cells has {len(self.codes)} codes")
        self.exactly = output.get("against") == "equality"
        self.rows, self.columns = math.prod(self.shape[: self.split]), math.prod(self.shape[self.split :])
        used = [code for code in self.codes if 0 < code < DIFFERS]
        self.low = max(1, BOUND - _octaves(BOUND - min([BOUND, *used])))
        self.top = min(DIFFERS - 2, BOUND + _octaves(max([BOUND, *used]) - BOUND))

    def color(self, code: int) -> tuple[int, int, int]:
        if code == 0:
            return NONE
        if code == DIFFERS:
            return ODD
        if code <= BOUND:
            return _blend(WITHIN, (code - self.low) / (BOUND - self.low))
        return _blend(BEYOND, (code - BOUND - 1) / max(1, self.top - BOUND - 1))

    def png(self) -> bytes:
        """The map as a PNG: a palette of all codes, and a byte for each cell."""
        palette = b"".join(bytes(self.color(code)) for code in range(256))
        rows = b"".join(b"\0" + self.codes[at : at + self.across] for at in range(0, len(self.codes), self.across))
        head = struct.pack(">IIBBBBB", self.across, self.down, 8, 3, 0, 0, 0)
        parts = ((b"IHDR", head), (b"PLTE", palette), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
            for name, data in parts
        )

    def beyond(self) -> str:
        """Where the cells with entries beyond the bound lie; empty if there are none."""
        at = [i for i, code in enumerate(self.codes) if code > BOUND]
        if not at:
            return ""
        if len(at) == len(self.codes):
            return "every cell"
        tops, lefts = [i // self.across for i in at], [i % self.across for i in at]
        across = _span(("column", "columns") if self.split else ("entry", "entries"), lefts, self.wide, self.columns)
        down = f"{_span(('row', 'rows'), tops, self.high, self.rows)}, " if self.split else ""
        of = "cells of " if self.high * self.wide > 1 else ""
        return f"{of}{down}{across} ({len(at)} of {len(self.codes)} cells)"

    def axes(self) -> tuple[str, str]:
        """The names of the axes that make up the rows, and of those that make up the columns."""
        named = [f"axis {i}" for i in range(len(self.shape))]
        return " × ".join(named[: self.split]), " × ".join(named[self.split :])

    def cell(self) -> str:
        if self.high * self.wide == 1:
            return "one entry"
        return f"the worst of {self.high} × {self.wide} entries" if self.split else f"the worst of {self.wide} entries"


def _octaves(codes: int) -> int:
    """Return the number of codes from the bound to an end of the scale: at least `codes`. The end's ratio is a power of two."""
    return max(SPAN, math.ceil(codes / STEPS) * STEPS)


def drawing(found: Map, said: str) -> str:
    """The map as SVG, with the indices along its axes. `said`: its text alternative."""
    plot_w = min(352.0, found.across * 36.0)
    plot_h = plot_w * found.down / found.across
    if plot_h > 400:
        plot_w, plot_h = max(24.0, plot_w * 400 / plot_h), 400.0
    plot_h = max(plot_h, 36.0)
    left, top = 56, 8
    data = base64.b64encode(found.png()).decode()
    rows, columns = found.axes()
    marks = [
        f'<image class="map" x="{left}" y="{top}" width="{plot_w:.1f}" height="{plot_h:.1f}" preserveAspectRatio="none" '
        f'href="data:image/png;base64,{data}"/>',
        f'<rect class="frame" x="{left}" y="{top}" width="{plot_w:.1f}" height="{plot_h:.1f}"/>',
    ]
    for i in _ticks(found.columns, 5 if plot_w > 200 else 2):
        x = left + plot_w * min(1.0, (i + 0.5) / (found.across * found.wide))
        marks.append(f'<text x="{x:.1f}" y="{top + plot_h + 15:.1f}" text-anchor="middle">{i}</text>')
    for i in _ticks(found.rows, 5 if plot_h > 120 else 2) if found.split else ():
        y = top + plot_h * min(1.0, (i + 0.5) / (found.down * found.high))
        marks.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{i}</text>')
    marks.append(f'<text class="name" x="{left}" y="{top + plot_h + 31:.1f}">{columns or "its one entry"} →</text>')
    if rows:
        marks.append(
            f'<text class="name" transform="translate(12 {top + plot_h:.1f}) rotate(-90)" x="0" y="0">{rows} →</text>'
        )
    height = max(top + plot_h + 40, 110 if rows else 0)
    return f'<svg class="chart" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label={attribute(said)}>{"".join(marks)}</svg>'


def legend(found: Map) -> str:
    """The scale of the colours, as SVG."""
    if found.exactly:
        marks = [_key(8, NONE, "equal to the reference's"), _key(220, ODD, "differs")]
        return f'<svg class="chart" viewBox="0 0 {WIDTH} 26" aria-hidden="true">{"".join(marks)}</svg>'
    marks, left, width, middle = [], 8, 400, 208
    for first, last, x0, x1 in ((found.low, BOUND, left, middle), (BOUND + 1, found.top, middle, left + width)):
        count = 25
        for i in range(count):
            code = first + round((last - first) * i / (count - 1))
            x = x0 + (x1 - x0) * i / count
            marks.append(
                f'<rect x="{x:.2f}" y="4" width="{(x1 - x0) / count + 0.4:.2f}" height="14" fill="{_css(found.color(code))}"/>'
            )
    marks.append(f'<path class="bound" d="M{middle} 0V22"/>')
    for x, code, anchor in ((left, found.low, "start"), (left + width, found.top, "end")):
        marks.append(f'<text x="{x}" y="34" text-anchor="{anchor}">{_times(2.0 ** ((code - BOUND) / STEPS))}</text>')
    marks.append(f'<text x="{middle}" y="34" text-anchor="middle">the bound</text>')
    marks += [_key(8, NONE, "no error", 42), _key(110, ODD, "NaN or Inf in the wrong place", 42)]
    return f'<svg class="chart" viewBox="0 0 {WIDTH} 62" aria-hidden="true">{"".join(marks)}</svg>'


def _key(x: float, color: tuple[int, int, int], says: str, y: float = 6) -> str:
    return (
        f'<rect class="frame" x="{x}" y="{y}" width="14" height="14"/><rect x="{x}" y="{y}" width="14" height="14" '
        f'fill="{_css(color)}"/><text x="{x + 20}" y="{y + 12}">{says}</text>'
    )


def _times(ratio: float) -> str:
    if ratio < 1:
        return f"1/{1 / ratio:.0f} of it" if ratio > 1e-4 else f"{figure(ratio, 1)} of it"
    return f"{ratio:.0f} times it" if ratio < 1e4 else f"{figure(ratio, 1)} times it"


def _span(names: tuple[str, str], cells: list[int], step: int, size: int) -> str:
    """The range of indices from the first to the last of `cells`, in words. `names`: what one index and several are called."""
    low, high = min(cells) * step, min(size, (max(cells) + 1) * step)
    return f"{names[0]} {low}" if high - low == 1 else f"{names[1]} {low} to {high - 1}"


def _ticks(size: int, most: int) -> list[int]:
    """Indices along an axis of `size`: the first, round ones, and the last."""
    if size <= 1:
        return [0]
    step = max(1, size // most)
    base = 10 ** int(math.log10(step))
    step = next(base * k for k in (1, 2, 5, 10) if base * k >= step)
    inner = [i for i in range(step, size, step) if size - 1 - i > step * 0.6]
    return [0, *inner, size - 1]


def _blend(colors: tuple[tuple[int, int, int], ...], at: float) -> tuple[int, int, int]:
    at = min(1.0, max(0.0, at)) * (len(colors) - 1)
    i = min(int(at), len(colors) - 2)
    a, b = colors[i], colors[i + 1]
    return tuple(round(p + (q - p) * (at - i)) for p, q in zip(a, b, strict=True))  # type: ignore[return-value]


def _css(color: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color)


def says(output: dict[str, Any], found: Map) -> str:
    """What the map shows, in words."""
    entries, wrong, odd = (int(number(output.get(name, 0))) for name in ("entries", "wrong", "odd"))
    if found.exactly:
        first = (
            f"{odd} of {entries} entries differ from the reference's"
            if odd
            else f"All {entries} entries are the reference's"
        )
    elif not wrong:
        first = f"No entry of {entries} is beyond its bound; the worst uses {_share(number(output['largest']))} of it"
    else:
        first = f"{wrong} of {entries} entries ({wrong / entries:.2%}) {_are(wrong)} beyond the bound"
        if number(output["largest"]) > 1:
            first += f", the worst {figure(output['largest'])} times"
        if odd:
            first += f"; {odd} {_are(odd)} NaN or infinite where the reference is not, or the other way round"
    where = found.beyond()
    return f"{first}. In {where}." if where else f"{first}."


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _share(ratio: float) -> str:
    return f"{ratio:.1%}" if ratio >= 0.0995 else f"{ratio:.2%}" if ratio >= 0.0005 else f"{figure(ratio, 2)}"
