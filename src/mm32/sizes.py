"""The sizes of products as a user writes them: "MxKxN:layout", in `mm32 bench`, `mm32 explain` and `mm32 export`.

M, K and N are axes: a number, a range `512..4096`, which doubles, a range `512..4096+512`, which adds, or several of these with
a slash between them, `512..4096/1000`. One axis alone is a square: `512..4096` is 512x512x512, 1024x1024x1024, ... There may be
several words too: `2048x8192x4096:nn/tt`. A text stands for all combinations of its axes; the last axis changes first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from mm32.gemm import LAYOUTS

EXAMPLE = "2048x8192x4096:tt"
MOST = 4096  # the most products of one text: a mistyped range should not make millions
_AXIS = r"\d+(?:\.\.\d+(?:\+\d+)?)?(?:/\d+(?:\.\.\d+(?:\+\d+)?)?)*"
_WRITTEN = re.compile(rf"({_AXIS})(?:x({_AXIS})x({_AXIS}))?((?::\w+(?:/\w+)*)*)")
_PART = re.compile(r"(\d+)(?:\.\.(\d+)(?:\+(\d+))?)?")


@dataclass(frozen=True)
class Sizes:
    """(M, K) times (K, N), its layout (None if it was not written), and other words by their kind."""

    m: int
    k: int
    n: int
    layout: str | None
    words: dict[str, str]


def parse(text: str, or_else: str = "", **kinds: Sequence[str]) -> list[Sizes]:
    """Return the products in "MxKxN[:layout]", such as "2048x8192x4096:tt" or "512..4096:nn/tt", in the order that the module's
    docstring names. At most one group of words of each further kind may follow the sizes.

    Args:
        or_else: what the text could have been instead, for the message: "a set (main, quick)".
        kinds: the words that may follow, by the kind's name.

    Raises ValueError, with an example, for any other text.
    """
    kinds = {"layout": LAYOUTS, **kinds}
    found = _WRITTEN.fullmatch(text)
    if not found:
        form = "MxKxN" + "".join(f"[:{kind}]" for kind in kinds)
        if or_else:
            raise ValueError(f"{text!r} is neither {or_else} nor sizes {form}, such as {EXAMPLE}")
        raise ValueError(f"{text!r} is not of the form {form}, such as {EXAMPLE}")
    words = _words(text, found[4], kinds)
    ms = _values(text, found[1])
    ks, ns = (_values(text, found[axis]) for axis in (2, 3)) if found[2] else ([0], [0])
    layouts: list[str | None] = [*words.pop("layout", [])] or [None]
    count = len(layouts) * math.prod(len(values) for values in (ms, ks, ns)) * math.prod(map(len, words.values()))
    if count > MOST:
        raise ValueError(f"{text!r} has {count} products; {MOST} are the most that one text may have")
    made = []
    for (m, k, n), layout in product(product(ms, ks, ns), layouts):
        for others in product(*words.values()):
            made.append(
                Sizes(m, k if found[2] else m, n if found[2] else m, layout, dict(zip(words, others, strict=True)))
            )
    return made


def _values(text: str, axis: str) -> list[int]:
    """The numbers of an axis, each once, in the order in which they are written."""
    values: dict[int, None] = {}
    for part in axis.split("/"):
        start, end, step = (None if number is None else int(number) for number in _PART.fullmatch(part).groups())  # type: ignore[union-attr]
        assert start is not None
        if end is None:
            values[start] = None
        elif end < start:
            raise ValueError(f"{text!r}: {part!r} ends below where it begins")
        elif step is not None:
            if step == 0:
                raise ValueError(f"{text!r}: {part!r} has steps of 0")
            steps = range(start, end + 1, step)
            if len(steps) > MOST:
                raise ValueError(
                    f"{text!r}: {part!r} has {len(steps)} sizes; {MOST} are the most that one text may have"
                )
            values.update(dict.fromkeys(steps))
        elif start == 0:
            raise ValueError(f"{text!r}: {part!r} doubles from 0; a range that adds is written 0..64+16")
        else:
            while start <= end:
                values[start] = None
                start *= 2
    return list(values)


def _words(text: str, written: str, kinds: dict[str, Sequence[str]]) -> dict[str, list[str]]:
    """The words by their kind."""
    words: dict[str, list[str]] = {}
    for group in written.split(":")[1:]:
        of_group = ""
        for position, word in enumerate(group.split("/")):
            kind = next((kind for kind, known in kinds.items() if word in known), None)
            if kind is None:
                listed = [f"a {kind} ({', '.join(known)})" for kind, known in kinds.items()]
                what = f"neither {' nor '.join(listed)}" if len(listed) > 1 else f"not {listed[0]}"
                raise ValueError(f"{text!r}: {word!r} is {what}; an example is {EXAMPLE}")
            if position and kind != of_group:
                raise ValueError(f"{text!r}: {group!r} has a {of_group} and a {kind}; a colon stands between those")
            of_group = kind
            if kind in words and (position == 0 or word in words[kind]):
                raise ValueError(
                    f"{text!r} has two {kind}s, {words[kind][-1]!r} and {word!r}; several are written nn/tt"
                )
            words.setdefault(kind, []).append(word)
    return words
