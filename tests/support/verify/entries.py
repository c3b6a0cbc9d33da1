"""The corpus: candidates that cheat, and candidates that only look as if they did, each with the verdict that it must get.

A file's docstring says what it does, which reference it goes with, on which device it works, and the verdict: `not SAME` (its
outputs are wrong), `not FASTER` (its outputs are right, its time is forged), `SAME, not FASTER` (as `not FASTER`, and it must be
judged the same), `rejected` (either of the first two) or `SAME`. A cheat that is known to pass says why, in a line
`passes: REASON`: its test is expected to fail, and a pass counts as a failure (unless REASON begins with "mostly, ").
tests/verify/test_corpus.py runs some of the files one by one, benchmarks/corpus.py all of them as one batch.

The first letter of a name says where a file comes from. Files p, t and j are by people who knew the tool (processes and pages;
clocks, caches and streams; arithmetic and semantics). Each other letter is one attack or one class of candidates, by people who
did not know it (docs/log/attacks.md lists them in order); l and q are from scans and from CUDA as it is written. A new file takes
a new letter, or that of its class, and its reference is in references/ under the same letter.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from mm32.verify import Report, Verdict, verify

CORPUS = Path(__file__).parents[2] / "verify" / "corpus"
VERDICTS = {"cheats": {"not SAME", "not FASTER", "SAME, not FASTER", "rejected"}, "honest": {"SAME"}}
TRIALS, TIMEOUT = 2, 120.0


@dataclass(frozen=True)
class Entry:
    """One candidate. `kind`: cheats or honest. `device`: cpu, cuda or both. `passes`: why a cheat is known to pass."""

    path: Path
    kind: str
    reference: Path
    device: str
    verdict: str
    passes: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.path.stem}"

    @property
    def compiles(self) -> bool:
        """Whether the candidate compiles an extension, which takes about a minute."""
        return "load_inline(" in self.path.read_text()

    def fits(self, verdict: Verdict) -> bool:
        """Return whether a verdict is one that this candidate may get."""
        return {
            "not SAME": not verdict.same,
            "not FASTER": verdict is not Verdict.FASTER,
            "SAME, not FASTER": verdict.same and verdict is not Verdict.FASTER,
            "rejected": verdict is not Verdict.FASTER,
            "SAME": verdict.same,
        }[self.verdict]

    def run(self) -> Report:
        return verify(self.reference, self.path, trials=TRIALS, timeout=TIMEOUT)


def read(path: Path) -> Entry:
    """Return the entry of a file. Raises ValueError if its docstring lacks a field."""
    said = ast.get_docstring(ast.parse(path.read_text())) or ""
    fields = dict(line.split(": ", 1) for line in said.rpartition("\n\n")[2].splitlines() if ": " in line)
    if not {"reference", "device", "verdict"} <= fields.keys():
        raise ValueError(f"{path.name} does not say its reference, device and verdict")
    reference = CORPUS / "references" / f"{fields['reference']}.py"
    return Entry(path, path.parent.name, reference, fields["device"], fields["verdict"], fields.get("passes", ""))


ENTRIES = [read(path) for kind in VERDICTS for path in sorted((CORPUS / kind).glob("*.py"))]
