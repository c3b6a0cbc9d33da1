"""docs/errors.md as `mm32 errors` shows it: its entries, and which of them a message belongs to.

A message has other numbers and names than its entry, and may be in the middle of a log. So single words and pairs of consecutive
words are compared, each with a weight that is larger the fewer entries have it. The text that is asked for may be a part of a
message, or contain one: the score is how much of the shorter of the two is in both.
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
)  # where mm32's own texts say this, users are to put their own text
ENOUGH = 0.6  # the least share in common with which an entry is shown
PAIRS = 0.5  # the share of the pairs of words that has to be in common
WHOLE = 0.6  # the least share of an entry's fixed words that a whole message has
CLOSE = 0.8  # entries with less than this part of the best entry's share are not shown
MOST = 3  # the most entries that are shown
UNKNOWN = 1.0  # weight of a pair that no entry has, although entries have both words
NAMES = 3.0  # weight of a word that no entry has
DRIVER = "CUDA_ERROR_"  # how the driver's error names begin
CODE = re.compile(r"\b[A-Z0-9]+(?:_[A-Z0-9]+)+\b")  # a name such as CUDA_ERROR_OUT_OF_MEMORY or MM32_DISABLE
ENTRY = re.compile(r"^- (`+)(.+?)\1\s+\((\w+)\):\s(.*?)(?=\n- |\n\n|\Z)", re.M | re.S)
FILLED_IN = re.compile(r"'[^']*'|\S*/\S*|\([^()]*\)|\[[^\]]*\]")
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


@dataclass(frozen=True)
class Entry:
    """One error of the page: an example of its text, its type, and the reason and what to do, in two sentences or more. A
    paragraph about several errors has no text and no type."""

    heading: str
    message: str
    kind: str
    why: str

    def shown(self, width: int = 100) -> str:
        """Return the entry as text for a terminal."""
        error = f"{self.kind}: {self.message}" if self.message else ""
        wrapped = [
            textwrap.fill(part, width, break_on_hyphens=False) for part in (error, LINK.sub(r"\1", self.why)) if part
        ]
        return "\n".join([f"{self.heading}", "", wrapped[0], *(textwrap.indent(part, "  ") for part in wrapped[1:])])


def path() -> Path:
    """The path of the page: inside an installed mm32, or in docs/ of a checkout."""
    package = Path(__file__).resolve().parent
    inside = package / NAME
    return inside if inside.is_file() else package.parents[1] / "docs" / NAME


def read(text: str) -> list[Entry]:
    """The entries of a page, and the paragraphs of its sections that are not entries."""
    found = []
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        heading, _, body = section.partition("\n")
        found += [Entry(heading, _joined(m[2]), m[3], _joined(m[4])) for m in ENTRY.finditer(body)]
        rest = ENTRY.sub("", body).split("\n\n")
        found += [Entry(heading, "", "", _joined(part)) for part in rest if part.strip()]
    return found


@cache
def entries() -> tuple[Entry, ...]:
    """The entries of the page. Raises OSError if the installation has no such page."""
    return tuple(read(path().read_text(encoding="utf-8")))


def headings(known: Sequence[Entry]) -> dict[str, int]:
    """How many errors stand under each heading."""
    return dict(Counter(entry.heading for entry in known if entry.message))


def find(asked: str, known: Sequence[Entry]) -> list[Entry]:
    """The entries that a message, a part of one, or a log may belong to, the best first. For a heading, all entries under it."""
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
        # Words that no entry has are most likely names. They are left out, so that the words around them form a pair.
        common = [word for word in words if (word,) in weights]
        given, names = _features(common), NAMES * (len(words) - len(common))
        for i, features in enumerate(of_entries):
            both = given & features
            if not both or _pairs(both) < PAIRS * min(_pairs(given), _pairs(features)):
                continue  # only scattered words: not a part of this message
            smaller = min(_weight(given, weights) + names, _weight(features, weights))
            shares[i] = max(shares[i], _weight(both, weights) / smaller)
    least = max(ENOUGH, CLOSE * max(shares, default=0.0))
    order = sorted(range(len(known)), key=lambda i: -shares[i])
    return [known[i] for i in order if shares[i] >= least][:MOST] or _of_codes(asked, known)


def pointer(message: str) -> str:
    """What stands below an error's message: the page's explanation, or where to read it if several errors are much alike. Empty
    if the page has no such error."""
    try:
        given = set(_words(message))
        known = [entry for entry in find(message, entries()) if _share(_fixed(entry.message), given) >= WHOLE]
    except OSError:  # an installation without the page
        return ""
    if len(known) > 1:
        return "What it means and what to do: mm32 errors 'PART OF THE MESSAGE'"
    why = LINK.sub(r"\1", known[0].why) if known else ""
    return why[:1].upper() + why[1:]


def nothing(asked: str) -> str:
    """The answer to a text that has no entry."""
    begin = " ".join(asked.split())
    shown = f"{begin[:80]}..." if len(begin) > 80 else begin
    return (
        f"no error of mm32's has a message like {shown!r}. Give more of it, as it was printed, or look under a heading: "
        "`mm32 errors` lists them.\nErrors of other libraries are not here. What is missing on this machine, `mm32 env` shows."
    )


def _of_codes(asked: str, known: Sequence[Entry]) -> list[Entry]:
    """The entries whose explanation has a name in capitals that was asked for. If there are none and the name is one of the
    driver's, those that have any of the driver's names."""
    codes = set(CODE.findall(asked))
    found = [entry for entry in known if codes & set(CODE.findall(entry.why))]
    if not found and any(code.startswith(DRIVER) for code in codes):
        found = [entry for entry in known if DRIVER in entry.why]
    return found[:MOST]


def _words(text: str) -> list[str]:
    """The words of a text: no numbers, but names that contain digits, such as mm32 in mm32.matmul."""
    return [word for word in re.findall(r"[^\W\d]\w*", text.casefold()) if len(word) > 1]


def _pairs(features: Iterable[tuple[str, ...]]) -> int:
    return sum(len(feature) == 2 for feature in features)


def _fixed(message: str) -> set[str]:
    """The words of a message that are the same each time: not those in quotes, in brackets, or of a path."""
    return set(_words(FILLED_IN.sub(" ", message)))


def _share(words: set[str], given: set[str]) -> float:
    return len(words & given) / len(words) if words else 0.0


def _features(words: Sequence[str]) -> set[tuple[str, ...]]:
    """Each word, and each pair of consecutive words."""
    return {(word,) for word in words} | set(itertools.pairwise(words))


def _weight(features: Iterable[tuple[str, ...]], weights: Mapping[tuple[str, ...], float]) -> float:
    return sum(weights.get(feature, UNKNOWN) for feature in features)


def _joined(text: str) -> str:
    return " ".join(text.split())
