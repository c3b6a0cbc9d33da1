"""Makes text that came from a candidate safe to show: it cannot leave its line, move the cursor, or pass for the tool's.

Exception messages, class names, printed output and compiler logs are chosen by the code under test. Before any of it
reaches a report it goes through `one_line` or `log`; see channel.py and process.py, where it arrives.
"""

from __future__ import annotations

import math

LINE = 1000  # characters of one message that are kept
LOG_LINE = 300  # characters of one line of a log that are kept
LOG_LINES = 4000


def one_line(value: object, limit: int | None = LINE) -> str:
    """`value` as one line of printable characters.

    What is not printable is written as Python's escape of it: line breaks of every kind, control characters, terminal
    escapes, bidirectional controls, invisible characters and lone surrogates. Text longer than `limit` characters is cut.
    """
    text = str(value)
    cut = limit is not None and len(text) > limit
    kept = text[:limit] if cut else text
    if not kept.isprintable():
        kept = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in kept)
    return f"{kept}… ({len(text)} characters)" if cut else kept


def shortened(value: str, limit: int) -> str:
    """A line of at most `limit` characters: cut between words where that loses less than half of it, and "…" for the rest."""
    if len(value) <= limit:
        return value
    kept = value[: limit - 1]
    words = kept if value[limit - 1].isspace() else kept.rpartition(" ")[0]
    return f"{(words if 2 * len(words) > limit else kept).rstrip(' ,;:')}…"


def log(value: object) -> str:
    """A log of several lines: each as `one_line` makes it, separated by line feeds; the middle of a long log is left out."""
    lines = str(value).replace("\r\n", "\n").expandtabs(4).split("\n")
    if len(lines) > LOG_LINES:
        half = LOG_LINES // 2
        lines = [*lines[:half], f"[... {len(lines) - 2 * half} lines left out ...]", *lines[-half:]]
    return "\n".join(one_line(line.rstrip(), LOG_LINE) for line in lines)


def fold(line: str, width: int, prefix: str) -> list[str]:
    """`line` in pieces that fit a terminal of `width` columns; every piece but the first begins with `prefix`.

    A terminal would go on in its first column, where a piece of a candidate's message could look like a line of its own.
    A character outside ASCII counts as two columns, the most that a terminal gives one.
    """
    pieces, piece, used = [], "", 0
    for character in line:
        size = 1 if character.isascii() else 2
        if used + size > max(width, len(prefix) + 2):
            pieces.append(piece)
            piece, used = prefix, len(prefix)
        piece, used = piece + character, used + size
    return [*pieces, piece]


def in_units(t: float) -> str:
    """Seconds for a person: 1.23 ms."""
    if not math.isfinite(t):
        return str(t)
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(t) >= size:
            return f"{t / size:.4g} {unit}"
    return f"{t / 1e-9:.3g} ns"
