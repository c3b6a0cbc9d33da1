"""A small SVG canvas for the pictures and diagrams of README.md and docs/, in two themes.

The same input gives the same bytes, so a test can compare a file with its record. Text stays text, in the reader's own font, so
widths are estimated, with room to spare. The background is the page's; a file's colours are for a light or a dark background.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 640  # pixels, of every picture, so that all texts have one size on a page
FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'Liberation Sans', Helvetica, Arial, sans-serif"
LETTER = 0.56  # the mean width of a letter relative to the font's size, in the widest of these fonts


@dataclass(frozen=True)
class Theme:
    """Colours as #rrggbb, for text, lines and fills. `colours`: the colour of each implementation."""

    name: str
    text: str
    muted: str
    line: str  # of the grid lines of axes
    fill: str  # of boxes
    warning: str
    colours: dict[str, str]


# From Okabe and Ito's palette, which the colour-blind can tell apart; lighter on dark. Markers and labels differ too.
LIGHT = Theme(
    "light", "#1f2328", "#59636e", "#d1d9e0", "#eef1f4", "#9a4a00",
    {"torch": "#1f2328", "torch-tf32": "#0072b2", "triton-tf32x3": "#00795a", "mm32": "#d04a00"},
)  # fmt: skip
DARK = Theme(
    "dark", "#e6edf3", "#9aa4af", "#3d444d", "#2a313a", "#f0a35e",
    {"torch": "#e6edf3", "torch-tf32": "#56b4e9", "triton-tf32x3": "#2fc79b", "mm32": "#ff8a4c"},
)  # fmt: skip
THEMES = (LIGHT, DARK)


def text_width(text: str, size: float) -> float:
    return len(text) * size * LETTER


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


class Canvas:
    """Shapes in the order in which they are drawn. Coordinates are in pixels, y downwards; all colours are #rrggbb."""

    def __init__(self, height: float, theme: Theme, width: float = WIDTH):
        self.width, self.height, self.theme = width, height, theme
        self.parts: list[str] = []

    def _add(self, tag: str, content: str | None = None, **attributes: object) -> None:
        given = "".join(
            f' {name.rstrip("_").replace("_", "-")}="{_number(value) if isinstance(value, float) else escape(str(value))}"'
            for name, value in attributes.items()
            if value is not None
        )
        self.parts.append(f"<{tag}{given}/>" if content is None else f"<{tag}{given}>{escape(content)}</{tag}>")

    def text(
        self, x: float, y: float, text: str, size: float = 15, colour: str | None = None, anchor: str = "start",
        bold: bool = False, turned: bool = False,
    ) -> None:  # fmt: skip
        """Add a text. `y` is its base line. `anchor` is start, middle or end. A turned text reads upwards."""
        self._add(
            "text", text, x=float(x), y=float(y), font_size=float(size), fill=colour or self.theme.text,
            text_anchor=None if anchor == "start" else anchor, font_weight="600" if bold else None,
            transform=f"rotate(-90 {_number(x)} {_number(y)})" if turned else None,
        )  # fmt: skip

    def line(
        self, x1: float, y1: float, x2: float, y2: float, colour: str | None = None, width: float = 1,
        dashed: bool = False, arrow: bool = False,
    ) -> None:  # fmt: skip
        colour = colour or self.theme.muted
        length = math.hypot(x2 - x1, y2 - y1)
        if arrow and length:
            dx, dy = (x2 - x1) / length, (y2 - y1) / length
            base_x, base_y = x2 - 8 * dx, y2 - 8 * dy
            self.polygon([(x2, y2), (base_x - 4 * dy, base_y + 4 * dx), (base_x + 4 * dy, base_y - 4 * dx)], colour)
            x2, y2 = base_x, base_y
        self._add(
            "line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), stroke=colour, stroke_width=float(width),
            stroke_dasharray="5 4" if dashed else None,
        )  # fmt: skip

    def path(self, points: Sequence[tuple[float, float]], colour: str, width: float = 2, dashed: bool = False) -> None:
        at = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
        self._add(
            "polyline", points=at, fill="none", stroke=colour, stroke_width=float(width), stroke_linejoin="round",
            stroke_dasharray="6 4" if dashed else None,
        )  # fmt: skip

    def polygon(self, points: Iterable[tuple[float, float]], fill: str, stroke: str | None = None) -> None:
        at = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
        self._add("polygon", points=at, fill=fill, stroke=stroke)

    def box(
        self, x: float, y: float, width: float, height: float, fill: str | None = None, stroke: str | None = None,
        round_: float = 0, opacity: float | None = None, stroke_width: float = 1,
    ) -> None:  # fmt: skip
        self._add(
            "rect", x=float(x), y=float(y), width=float(width), height=float(height), rx=float(round_) or None,
            fill=fill or "none", stroke=stroke, stroke_width=float(stroke_width) if stroke else None,
            fill_opacity=None if opacity is None else f"{opacity:g}",
        )  # fmt: skip

    def mark(self, x: float, y: float, kind: str, colour: str, hollow: bool = False, size: float = 5.5) -> None:
        """Add a point of a chart: "circle", "square", "diamond" or "star"."""
        fill, stroke = ("none", colour) if hollow else (colour, None)
        if kind == "circle":
            self._add(
                "circle", cx=float(x), cy=float(y), r=float(size), fill=fill, stroke=stroke,
                stroke_width=2 if hollow else None,
            )  # fmt: skip
            return
        corners = {"square": 4, "diamond": 4, "star": 10}[kind]
        turn = math.pi / 4 if kind == "square" else 0.0
        points = []
        for i in range(corners):
            radius = size * (0.5 if kind == "star" and i % 2 else 1.45 if kind == "star" else 1.25)
            angle = turn - math.pi / 2 + 2 * math.pi * i / corners
            points.append((x + radius * math.cos(angle), y + radius * math.sin(angle)))
        self._add(
            "polygon", points=" ".join(f"{_number(a)},{_number(b)}" for a, b in points), fill=fill, stroke=stroke,
            stroke_width=2 if hollow else None,
        )  # fmt: skip

    def svg(self, title: str) -> str:
        """Return the text of the file; `title` is what a screen reader says."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_number(self.width)} {_number(self.height)}" '
            f'width="{_number(self.width)}" height="{_number(self.height)}" font-family="{escape(FONT)}" role="img">'
        )
        return "\n".join([head, f"<title>{escape(title)}</title>", *self.parts, "</svg>"]) + "\n"
