"""The diagrams of docs/kernels.md as SVG, in that page's words: `make tables` draws them (tables.py).

They show how something works, not figures of a record.
"""

from __future__ import annotations

from collections.abc import Callable

from .drawing import Canvas, Theme


def tile(theme: Theme) -> str:
    """Draw a tile of C, the panels of A and B that it needs, and their K-blocks."""
    canvas = Canvas(342, theme)
    block, side = 22, 36  # pixels: a K-block along K, and the side of a tile
    k, tiles, row, column = 6 * block, 4 * side, 1, 2
    a_x, c_y = 34.0, 172.0
    c_x, b_y = a_x + k + 26, 14.0
    accent, other, mark = theme.colours["torch-tf32"], theme.colours["triton-tf32x3"], theme.colours["mm32"]
    for x, y, width, height in ((a_x, c_y, k, tiles), (c_x, b_y, tiles, k), (c_x, c_y, tiles, tiles)):
        canvas.box(x, y, width, height, theme.fill, theme.muted)
    for i in range(1, 4):
        canvas.line(c_x, c_y + i * side, c_x + tiles, c_y + i * side, theme.line)
        canvas.line(c_x + i * side, c_y, c_x + i * side, c_y + tiles, theme.line)
    for i in range(6):
        now = i == 3
        canvas.box(a_x + i * block, c_y + row * side, block, side, accent, theme.text, opacity=0.95 if now else 0.35)
        canvas.box(c_x + column * side, b_y + i * block, side, block, other, theme.text, opacity=0.95 if now else 0.35)
    canvas.box(c_x + column * side, c_y + row * side, side, side, mark, theme.text)
    canvas.text(a_x + k / 2, c_y + tiles - 22, "A", 18, anchor="middle", bold=True)
    canvas.text(c_x + 36, b_y + k / 2 + 6, "B", 18, anchor="middle", bold=True)
    canvas.text(c_x + 36, c_y + tiles - 22, "C", 18, anchor="middle", bold=True)
    canvas.text(a_x - 10, c_y + tiles / 2, "M", 15, theme.muted, "end")
    canvas.text(a_x + k / 2, c_y - 8, "K", 15, theme.muted, "middle")
    canvas.text(c_x - 10, b_y + k / 2, "K", 15, theme.muted, "end")
    x = c_x + tiles + 26
    canvas.text(c_x + tiles / 2, c_y + tiles + 20, "N", 15, theme.muted, "middle")
    said = (
        ("a panel of B: 128 columns", other, 40), ("cut into K-blocks of 64", theme.text, 62),
        ("a tile of C: 128 × 128,", mark, 200), ("the work of one block", theme.text, 222),
        ("of threads at a time", theme.text, 244), ("a panel of A: 128 rows", accent, 276),
        ("full colour: the K-block", theme.text, 298), ("that is multiplied now", theme.text, 320),
    )  # fmt: skip
    for text, colour, y in said:
        canvas.text(x, y, text, 15, colour, bold=colour != theme.text)
    return canvas.svg("A tile of C, and the K-blocks of the panels of A and B that are multiplied for it")


def ring(theme: Theme) -> str:
    """Draw the ring of stages between the producer and the consumers."""
    canvas = Canvas(262, theme)
    green, orange = theme.colours["triton-tf32x3"], theme.colours["mm32"]
    for x, name, lines in (
        (2, "producer", ("one thread,", "bulk copies")), (508, "consumers", ("two warpgroups,", "wgmma")),
    ):  # fmt: skip
        canvas.box(x, 62, 130, 92, theme.fill, theme.muted, 6)
        canvas.text(x + 65, 88, name, 16, anchor="middle", bold=True)
        for i, line in enumerate(lines):
            canvas.text(x + 65, 112 + 20 * i, line, 14, anchor="middle")
    canvas.text(320, 20, "shared memory: a ring of 3 stages, a K-block each", 15, anchor="middle", bold=True)
    stages = (
        ("K-block 6", "is being copied", green),
        ("K-block 4", "is being multiplied", orange),
        ("K-block 5", "full, waits", None),
    )
    for i, (what, state, colour) in enumerate(stages):
        y = 36 + 50 * i
        canvas.box(190, y, 260, 42, colour or theme.fill, colour or theme.muted, 4, 0.25 if colour else None, 2)
        canvas.text(202, y + 26, f"{i}", 15, theme.muted, bold=True)
        canvas.text(226, y + 26, f"{what} {state}", 15)
    canvas.line(134, 92, 186, 62, green, 2, arrow=True)
    canvas.line(454, 107, 504, 107, orange, 2, arrow=True)
    canvas.path([(573, 156), (573, 206), (67, 206), (67, 166)], theme.muted, 1.5)
    canvas.polygon([(67, 156), (63, 166), (71, 166)], theme.muted)
    canvas.text(320, 226, "empty barrier: a stage has been read, and may be filled again", 14, theme.muted, "middle")
    canvas.text(
        320, 248, "full barrier: a stage's copies have arrived, and it may be multiplied", 14, theme.muted, "middle"
    )
    return canvas.svg(
        "A producer fills a ring of three stages in shared memory, from which two consumer warpgroups multiply"
    )


def split(theme: Theme) -> str:
    """Draw an fp32 number as two fp16 numbers, and the three products."""
    canvas = Canvas(300, theme)
    hi, lo = theme.colours["torch-tf32"], theme.colours["mm32"]
    bit = 11.0
    canvas.text(0, 18, "An operand's element", 15, bold=True)
    canvas.box(0, 34, 24 * bit, 30, theme.fill, theme.muted)
    canvas.text(12 * bit, 54, "x in fp32: 24 bits", 14, anchor="middle")
    canvas.box(0, 84, 11 * bit, 30, hi, hi, opacity=0.3)
    canvas.text(5.5 * bit, 104, "hi = fp16(x)", 14, anchor="middle")
    canvas.box(11 * bit + 3, 84, 11 * bit, 30, lo, lo, opacity=0.3)
    canvas.text(16.5 * bit + 3, 104, "lo = fp16(x − hi)", 14, anchor="middle")
    for i, line in enumerate(
        (
            "11 bits each; lo's sign is one more.",
            "fp16x3 with a scaled lo keeps 2¹¹·lo,",
            "so that lo stays in fp16's range.",
        )
    ):
        canvas.text(0, 142 + 20 * i, line, 14, theme.muted)
    canvas.text(330, 18, "Three products for 64 of K", 15, bold=True)
    x, y, side = 404.0, 64.0, 100.0
    cells = (("hi·hi", "third", hi), ("hi·lo", "second", lo), ("lo·hi", "first", lo), ("lo·lo", "left out", None))
    for i, (what, order, colour) in enumerate(cells):
        at = x + i % 2 * side, y + i // 2 * 56
        canvas.box(*at, side, 56, colour or None, theme.muted, opacity=0.3 if colour else None)
        canvas.text(
            at[0] + side / 2, at[1] + 24, what, 16, theme.text if colour else theme.muted, "middle", bold=bool(colour)
        )
        canvas.text(at[0] + side / 2, at[1] + 44, order, 13, theme.muted, "middle")
    canvas.text(x + side / 2, y - 8, "B's hi", 14, anchor="middle")
    canvas.text(x + 1.5 * side, y - 8, "B's lo", 14, anchor="middle")
    canvas.text(x - 8, y + 33, "A's hi", 14, anchor="end")
    canvas.text(x - 8, y + 89, "A's lo", 14, anchor="end")
    canvas.line(x + side, y + 116, x + side, y + 146, width=1.5, arrow=True)
    canvas.box(252, 214, 386, 72, theme.fill, theme.muted, 6)
    canvas.text(445, 242, "added to an fp32 register, rounded to nearest:", 15, anchor="middle")
    canvas.text(445, 266, "promoted, every 64 of K", 15, anchor="middle", bold=True)
    canvas.line(246, 250, 176, 250, width=1.5, arrow=True)
    canvas.text(168, 246, "in the end both", 14, anchor="end")
    canvas.text(168, 264, "scales are undone", 14, anchor="end")
    return canvas.svg(
        "An fp32 number is split into hi and lo in fp16; lo·hi, hi·lo and hi·hi are added up and promoted"
    )


def stream_k(theme: Theme) -> str:
    """Draw the last wave of tiles, divided into equal shares."""
    canvas = Canvas(392, theme)
    colours = [theme.colours[name] for name in ("torch-tf32", "triton-tf32x3", "mm32")]
    left, step, high = 158.0, 46.0, 24.0  # pixels; `step` is the width of one step along K, and a tile has 4

    def lanes(top: float, title: str) -> None:
        canvas.text(0, top - 12, title, 15, bold=True)
        for i in range(4):
            y = top + i * (high + 6)
            canvas.text(0, y + 17, f"multiprocessor {i}", 14, theme.muted)
            canvas.box(left, y, 4 * step, high, theme.fill, theme.muted)
            canvas.text(left + 2 * step, y + 17, f"tile {i}", 14, anchor="middle")

    lanes(34, "7 tiles on 4 multiprocessors: the last wave has 3")
    for i in range(4):
        y = 34 + i * (high + 6)
        if i < 3:
            canvas.box(left + 4 * step + 4, y, 4 * step, high, colours[i], theme.muted, opacity=0.45)
            canvas.text(left + 6 * step + 4, y + 17, f"tile {4 + i}", 14, anchor="middle")
        else:
            canvas.box(left + 4 * step + 4, y, 4 * step, high, None, theme.muted)
            canvas.text(left + 6 * step + 4, y + 17, "idle", 14, theme.muted, "middle")
    top = 216
    lanes(top, "stream-K: the steps along K of those 3 in 4 equal shares")
    for share in range(4):
        y, at = top + share * (high + 6), left + 4 * step + 4
        steps = [(3 * share + i) // 4 for i in range(3)]
        for which in sorted(set(steps)):
            width = steps.count(which) * step
            canvas.box(at, y, width, high, colours[which], theme.muted, opacity=0.45)
            canvas.text(
                at + width / 2, y + 17, f"tile {4 + which}" if width > step else f"{4 + which}", 14, anchor="middle"
            )
            at += width
    canvas.line(
        left + 7 * step + 9,
        top - 6,
        left + 7 * step + 9,
        top + 4 * (high + 6) + 2,
        theme.colours["mm32"],
        1.5,
        dashed=True,
    )
    canvas.line(left, 346, left + 200, 346, width=1.5, arrow=True)
    canvas.text(left + 212, 351, "time", 14, theme.muted)
    canvas.text(
        0, 381, "A tile in several shares has partial tiles; mm32_fixup adds them up in a fixed order.", 14, theme.muted
    )
    return canvas.svg(
        "Stream-K: the last wave's tiles are cut into equal shares of steps along K, one for each multiprocessor"
    )


def tiers(theme: Theme) -> str:
    """Draw which tier computes a product, and when the next tier does."""
    canvas = Canvas(306, theme)
    boxes = (
        ("fp16x3", "3 products", "22 bits", theme.colours["torch-tf32"], 2),
        ("bf16x6", "6 products", "24 bits", theme.colours["triton-tf32x3"], 238),
        ("FMA", "fp32 multiply-adds", "all of IEEE 754", theme.colours["mm32"], 474),
    )
    for name, how, bits, colour, x in boxes:
        canvas.box(x, 108, 164, 84, colour, colour, 6, 0.22, 2)
        canvas.text(x + 82, 134, name, 17, anchor="middle", bold=True)
        canvas.text(x + 82, 158, how, 14, anchor="middle")
        canvas.text(x + 82, 178, bits, 14, theme.muted, "middle")
        canvas.line(x + 82, 196, x + 82, 236, width=1.5, arrow=True)
    for x, lines in (
        (202, ("rows that span much,", "sums that cancel")),
        (438, ("out of bf16x6's range,", "NaN, Inf")),
    ):
        canvas.line(x - 32, 150, x + 32, 150, width=1.5, arrow=True)
        for i, line in enumerate(lines):
            canvas.text(x, 74 + 18 * i, line, 14, anchor="middle")
    canvas.path([(84, 104), (84, 34), (556, 34), (556, 94)], theme.muted, 1.5)
    canvas.polygon([(556, 104), (552, 94), (560, 94)], theme.muted)
    canvas.text(320, 24, "few rows, columns or elements: these alone", 14, anchor="middle")
    canvas.box(2, 240, 636, 34, theme.fill, theme.muted, 6)
    canvas.text(320, 262, "C, where the accept test says that the tier keeps the promise", 15, anchor="middle")
    canvas.text(
        0, 298, "The card decides from the data, without the host. fp16x3 has a form with a scaled lo.", 14, theme.muted
    )
    return canvas.svg(
        "The tiers: fp16x3 for most data, bf16x6 for rows that span much, fp32 multiply-adds for NaN and Inf"
    )


# file name -> the function that draws it, and the text in place of the picture
DIAGRAMS: dict[str, tuple[Callable[[Theme], str], str]] = {
    "tile": (tile, "A tile of C, and the K-blocks of the panels of A and B that are multiplied for it"),
    "ring": (
        ring,
        "A producer fills a ring of three stages in shared memory; two consumer warpgroups multiply from it",
    ),
    "split": (split, "An fp32 number split into hi and lo, and the three products of A's and B's"),
    "stream-k": (stream_k, "Stream-K: the last wave's tiles in equal shares of steps along K"),
    "tiers": (tiers, "The tiers: fp16x3, then bf16x6, then fp32 multiply-adds"),
}
