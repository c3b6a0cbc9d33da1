"""The sizes of a product as a user writes them: "MxKxN:layout", in `mm32 bench`, `mm32 explain` and `mm32 export`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mm32.gemm import LAYOUTS

EXAMPLE = "2048x8192x4096:tt"
_WRITTEN = re.compile(r"(\d+)x(\d+)x(\d+)((?::\w+)*)")


@dataclass(frozen=True)
class Sizes:
    """(M, K) times (K, N), its layout (None if it was not written), and other words by their kind."""

    m: int
    k: int
    n: int
    layout: str | None
    words: dict[str, str]


def parse(text: str, or_else: str = "", **kinds: Sequence[str]) -> Sizes:
    """The sizes in "MxKxN[:layout]", such as "2048x8192x4096:tt", followed by at most one word of each further kind.

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
    words: dict[str, str] = {}
    for word in found[4].split(":")[1:]:
        kind = next((kind for kind, known in kinds.items() if word in known), None)
        if kind is None:
            listed = [f"a {kind} ({', '.join(known)})" for kind, known in kinds.items()]
            what = f"neither {' nor '.join(listed)}" if len(listed) > 1 else f"not {listed[0]}"
            raise ValueError(f"{text!r}: {word!r} is {what}; an example is {EXAMPLE}")
        if kind in words:
            raise ValueError(f"{text!r} has two {kind}s, {words[kind]!r} and {word!r}")
        words[kind] = word
    m, k, n = (int(size) for size in found.groups()[:3])
    return Sizes(m, k, n, words.pop("layout", None), words)
