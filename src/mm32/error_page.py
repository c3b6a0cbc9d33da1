"""docs/errors.md as `mm32 errors` shows it: its entries, and which of them a message belongs to.

A message has other numbers and names than its entry, and may stand in the middle of a log. So words and pairs of words that
follow each other are compared, each weighted by how few entries have it. What is asked for may be a part of a message, or have
one as a part: what counts is the share in common of the shorter of the two.
"""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

NAME = "errors.md"
PLACEHOLDERS = (
    "PART OF THE MESSAGE",
    "PART OF A MESSAGE",
    "HEADING",
)  # what our own texts say to put one's own text for
ENOUGH = 0.6  # share in common from which on an entry is shown
PAIRS = 0.5  # of the pairs of words, that have to be in common
WHOLE = 0.6  # of the fixed words of an entry, that a whole message has
CLOSE = 0.8  # of the best entry's share: others below that are not shown
MOST = 3  # entries that are shown
UNKNOWN = 1.0  # weight of a pair that no entry has, of words that some have
NAMES = 3.0  # weight of a word that no entry has
DRIVER = "CUDA_ERROR_"  # how the driver's names of errors begin
CODE = re.compile(r"\b[A-Z0-9]+(?:_[A-Z0-9]+)+\b")  # a name such as CUDA_ERROR_OUT_OF_MEMORY or MM32_DISABLE
ENTRY = re.compile(r"^- (`+)(.+?)\1\s+\((\w+)\):\s(.*?)(?=\n- |\n\n|\Z)", re.M | re.S)
FILLED_IN = re.compile(r"'[^']*'|\S*/\S*|\([^()]*\)|\[[^\]]*\]")
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


@dataclass(frozen=True)
class Entry:
    """One error of the page: an example of its text, its type, and two sentences or more, why it comes and what to do. A
    paragraph about several errors has no text and no type."""

    heading: str
    message: str
    kind: str
    why: str

    def shown(self, width: int = 100) -> str:
        """As text for a terminal."""
        error = f"{self.kind}: {self.message}" if self.message else ""
        wrapped = [
            textwrap.fill(part, width, break_on_hyphens=False) for part in (error, LINK.sub(r"\1", self.why)) if part
        ]
        return "\n".join([f"{self.heading}", "", wrapped[0], *(textwrap.indent(part, "  ") for part in wrapped[1:])])


def path() -> Path:
    """Of the page: inside an installed mm32, in docs/ of a checkout."""
    package = Path(__file__).resolve().parent
    inside = package / NAME
    return inside if inside.is_file() else package.parents[1] / "docs" / NAME


def read(text: str) -> list[Entry]:
    """The entries of a page, and the paragraphs of its sections that are none."""
    found = []
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        heading, _, body = section.partition("\n")
        found += [Entry(heading, _joined(m[2]), m[3], _joined(m[4])) for m in ENTRY.finditer(body)]
        rest = ENTRY.sub("", body).split("\n\n")
        found += [Entry(heading, "", "", _joined(part)) for part in rest if part.strip()]
    return found


@cache
def entries() -> tuple[Entry, ...]:
    """Those of the page. Raises OSError where an installation lacks it."""
    return tuple(read(path().read_text(encoding="utf-8")))


def headings(known: Sequence[Entry]) -> dict[str, int]:
    """How many errors stand under each heading."""
    return dict(Counter(entry.heading for entry in known if entry.message))


def find(asked: str, known: Sequence[Entry]) -> list[Entry]:
    """The entries that a message, a part of one or a log may be of, the best first; all of a heading, if one was given."""
    under = [entry for entry in known if entry.heading.casefold() == asked.strip().casefold()]
    if under:
        return under
    if DRIVER in asked:
        return _of_codes(asked, known)
    of_entries = [_features(_words(entry.message)) for entry in known]
    counts = Counter(feature for features in of_entries for feature in features)
    weights = {feature: 1 + math.log(len(known) / count) for feature, count in counts.items()}
    shares = [0.0] * len(known)
    for text in {asked, *asked.splitlines()}:
        words = _words(text)
        # Words that no entry has are names, most likely: they are left out, so that the words around them are a pair.
        common = [word for word in words if (word,) in weights]
        given, names = _features(common), NAMES * (len(words) - len(common))
        for i, features in enumerate(of_entries):
            both = given & features
            if not both or _pairs(both) < PAIRS * min(_pairs(given), _pairs(features)):
                continue  # words here and there: no part of this message
            smaller = min(_weight(given, weights) + names, _weight(features, weights))
            shares[i] = max(shares[i], _weight(both, weights) / smaller)
    least = max(ENOUGH, CLOSE * max(shares, default=0.0))
    order = sorted(range(len(known)), key=lambda i: -shares[i])
    return [known[i] for i in order if shares[i] >= least][:MOST] or _of_codes(asked, known)


def pointer(message: str) -> str:
    """What is said below an error's message to who may want to know more; empty if the page has no such error."""
    try:
        given = set(_words(message))
        known = [entry for entry in find(message, entries()) if _share(_fixed(entry.message), given) >= WHOLE]
    except OSError:  # an installation without the page
        return ""
    return "What it means and what to do: mm32 errors 'PART OF THE MESSAGE'" if known else ""


def nothing(asked: str) -> str:
    """What is said of a text that has no entry."""
    begin = " ".join(asked.split())
    shown = f"{begin[:80]}..." if len(begin) > 80 else begin
    return (
        f"no error of mm32's has a message like {shown!r}. Give more of it, as it was printed, or look under a heading: "
        "`mm32 errors` lists them.\nErrors of other libraries are not here. What is missing on this machine, `mm32 env` shows."
    )


def _of_codes(asked: str, known: Sequence[Entry]) -> list[Entry]:
    """The entries whose explanation has a name in capitals that was asked for; for the driver's, one that has another of them."""
    codes = set(CODE.findall(asked))
    found = [entry for entry in known if codes & set(CODE.findall(entry.why))]
    if not found and any(code.startswith(DRIVER) for code in codes):
        found = [entry for entry in known if DRIVER in entry.why]
    return found[:MOST]


def _words(text: str) -> list[str]:
    """Without numbers, and with the mm32 of mm32.matmul."""
    return [word for word in re.findall(r"[^\W\d]\w*", text.casefold()) if len(word) > 1]


def _pairs(features: Iterable[tuple[str, ...]]) -> int:
    return sum(len(feature) == 2 for feature in features)


def _fixed(message: str) -> set[str]:
    """The words of a message that are the same each time: not what is quoted, a path, or a list."""
    return set(_words(FILLED_IN.sub(" ", message)))


def _share(words: set[str], given: set[str]) -> float:
    return len(words & given) / len(words) if words else 0.0


def _features(words: Sequence[str]) -> set[tuple[str, ...]]:
    """Each word, and each pair that follow each other."""
    return {(word,) for word in words} | set(itertools.pairwise(words))


def _weight(features: Iterable[tuple[str, ...]], weights: Mapping[tuple[str, ...], float]) -> float:
    return sum(weights.get(feature, UNKNOWN) for feature in features)


def _joined(text: str) -> str:
    return " ".join(text.split())
