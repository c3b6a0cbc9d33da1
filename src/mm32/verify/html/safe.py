"""What keeps a page safe and small: escaping, shortening, and the document with its content security policy."""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import math
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

LINE = 1000  # the most characters of one text that are shown
CODE_LINE = 600  # the same of one line of a source or a log
READ = 2 << 20  # the most bytes of a source that are read


def text(value: object, limit: int = LINE) -> str:
    """Return any text as text, cut after `limit` characters. Characters that are not printable (control and bidirectional ones
    among them) become visible escapes. It is in a <bdi>, whose letters the style sheet keeps in their order."""
    return f"<bdi>{escaped(value, limit)}</bdi>"


def breakable(value: object, limit: int = LINE) -> str:
    """As `text`, for a name: one that is too long for its line breaks behind one of its words, at _ or /, not at any letter."""
    said = str(value)
    words = re.split(r"(?<=[_/])", said[:limit])
    more = f"… ({len(said)} characters)" if len(said) > limit else ""
    return f"<bdi>{'<wbr>'.join(escaped(word) for word in words)}{more}</bdi>"


def escaped(value: object, limit: int = LINE) -> str:
    """As `text`, without the element around it. For attributes there is `attribute`."""
    said = str(value)
    kept = said[:limit]
    if kept.isprintable():
        shown = html.escape(kept)
    else:
        shown = "".join(html.escape(c) if c.isprintable() else f"<i>{_code(c)}</i>" for c in kept)
    if len(shown) > 6 * limit:  # mostly escapes: limit its bytes to what other texts have, not its characters
        return escaped(said, limit // 3)
    return f"{shown}… ({len(said)} characters)" if len(said) > limit else shown


def attribute(value: object, limit: int = LINE) -> str:
    """Return any text as the value of an attribute, with its quotes."""
    kept = str(value)[:limit]
    return '"' + html.escape("".join(c if c.isprintable() else _code(c) for c in kept)) + '"'


def local(path: str) -> str:
    """Return a path relative to the page as an attribute's value: whatever is in it, it is no address of another kind."""
    return attribute("./" + quote(path.encode("utf-8", "surrogateescape"), safe="/"), 4 * LINE)


def _code(character: str) -> str:
    return html.escape(character.encode("unicode_escape").decode("ascii"))


def lines(value: str, budget: int, mark: int | None = None, numbers: bool = True) -> tuple[str, int]:
    """Return a source or a log as <pre>, of about `budget` bytes at most, and how many lines of it are left out. These are in the
    middle, where a line says so. Line `mark` is marked."""
    rows = value.replace("\r\n", "\n").expandtabs(4).split("\n")
    while rows and not rows[-1].strip():
        rows.pop()
    made = {}
    head, tail, used = 0, len(rows), 0
    for turn in itertools.cycle((True, True, True, False)):  # three lines of the beginning for each line of the end
        if head >= tail:
            break
        number = head if turn else tail - 1
        row = _row(rows[number], number + 1 if numbers else None, number + 1 == mark)
        used += len(row.encode())
        if used > budget:
            break
        made[number] = row
        head, tail = (head + 1, tail) if turn else (head, tail - 1)
    out = [made[number] for number in range(head)]
    left_out = tail - head
    if left_out:
        out.append(f'<span class="gap">… {left_out} of {len(rows)} lines left out …</span>\n')
    out += [made[number] for number in range(tail, len(rows))]
    return f'<pre class="code" tabindex="0"><code>{"".join(out)}</code></pre>', left_out


def _row(row: str, number: int | None, marked: bool) -> str:
    at = f' data-n="{number}"' if number is not None else ""
    return f"<span{at}{' class=hit' if marked else ''}>{escaped(row.rstrip(), CODE_LINE)}</span>\n"


def read(path: str | Path) -> str:
    """Return a script's text for `page`: at most 2 MiB, with a last line that says so if there is more. If the script cannot be
    read, the text says why."""
    try:
        with open(path, "rb") as file:
            found = file.read(READ + 1)
    except OSError as error:
        return f"# {path} could not be read: {error.strerror}"
    rest = f"\n# ... what comes after {READ} bytes was not read" if len(found) > READ else ""
    return found[:READ].decode("utf-8", errors="replace") + rest


def some(values: Sequence[Any], most: int) -> tuple[list[Any], str]:
    """Return at most `most` values, from the beginning and the end, and a sentence that says how many between are left out; it is
    empty if none are."""
    between = len(values) - most
    if between <= 0:
        return list(values), ""
    last = most // 3
    return [*values[: most - last], *values[len(values) - last :]], f"{between} of {len(values)} are left out here."


def number(value: object) -> float:
    """Return a figure of a record as a float. In records NaN and infinities are strings."""
    if isinstance(value, (int, float)):
        return float(value)
    try:
        return float(str(value))
    except ValueError:
        return math.nan


def figure(value: object, digits: int = 3) -> str:
    """Return a figure as a person reads it: 0.0123, 4.56·10⁻⁷."""
    if value is None:
        return "–"
    found = number(value)
    if not math.isfinite(found):
        return {"nan": "NaN", "inf": "∞", "-inf": "−∞"}[str(found)]
    mantissa, _, exponent = f"{found:.{digits}g}".partition("e")
    return mantissa.replace("-", "−") + (f"·10{superscript(int(exponent))}" if exponent else "")


def superscript(n: int) -> str:
    return str(n).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], kinds: str, caption: str = "") -> str:
    """Return a table in a box of its own that scrolls. `head` and the cells of `rows` are markup. `kinds`: a letter for each
    column, n for figures, t for text, w for text that may be long, s for text that stays on one line."""
    classes = [f' class="{kind}"' for kind in kinds]
    names = "".join(f'<th scope="col"{kind}>{cell}</th>' for cell, kind in zip(head, classes, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row, classes, strict=True)) + "</tr>\n"
        for row in rows
    )
    said = f'<p class="soft">{caption}</p>' if caption else ""
    return f'{said}<div class="scroll" tabindex="0"><table><thead><tr>{names}</tr></thead><tbody>\n{body}</tbody></table></div>'


def section(name: str, title: str, body: str) -> str:
    return f'<section id="{name}"><h2>{title}</h2>\n{body}\n</section>\n' if body else ""


def document(title: str, body: str, scripts: Sequence[str] = ("theme.js",)) -> str:
    """Return a whole file. It loads nothing from anywhere, and allows only the style sheet and the scripts of this package: the
    policy names their hashes."""
    style = _file("page.css")
    codes = [_file(name) for name in scripts]
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src {_hash(style)}",
            f"script-src {' '.join(map(_hash, codes))}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    run = "".join(f"<script>{code}</script>\n" for code in codes)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>{html.escape("".join(c if c.isprintable() else _code(c) for c in title[:200]))}</title>
<style>{style}</style>
</head>
<body>
<button type="button" id="theme" hidden>Dark or light</button>
{body}
{run}</body>
</html>
"""


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() + "'"
