"""Candidates that cheat and candidates that only look as if they did: each with the verdict that it must get.

A file's docstring says what it does, which reference it goes with, on which device it works, and the verdict: `not SAME` (its
outputs are wrong), `not FASTER` (they are right, its time is forged), `rejected` (either) or `SAME`. A cheat that is known to
pass says why, in a line `passes: REASON`: its test is expected to fail, and fails once it does not. As a program, this module
runs all of them on the device at hand and writes a table: `python tests/verify/test_corpus.py [FILE.json] [NAME...]`.
"""

from __future__ import annotations

import ast
import json
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from mm32.verify import Report, Verdict, verify

CORPUS = Path(__file__).parent / "corpus"
QUICK = 6  # files of a quick run, of each kind half as many; all are run by `make test-all`, and on a GPU
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VERDICTS = {"cheats": {"not SAME", "not FASTER", "rejected"}, "honest": {"SAME"}}


@dataclass(frozen=True)
class Entry:
    """One candidate: `kind` is cheats or honest, `device` cpu, cuda or both; `passes`: why a cheat is known to pass."""

    path: Path
    kind: str
    reference: Path
    device: str
    verdict: str
    passes: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.path.stem}"

    def fits(self, verdict: Verdict) -> bool:
        """Whether a verdict is one that this candidate may get."""
        return {
            "not SAME": not verdict.same,
            "not FASTER": verdict is not Verdict.FASTER,
            "rejected": verdict is not Verdict.FASTER,
            "SAME": verdict.same,
        }[self.verdict]

    def run(self) -> Report:
        return verify(self.reference, self.path, trials=2, timeout=120.0)


def read(path: Path) -> Entry:
    """The entry of a file. Raises ValueError where its docstring lacks a field."""
    said = ast.get_docstring(ast.parse(path.read_text())) or ""
    fields = dict(line.split(": ", 1) for line in said.rpartition("\n\n")[2].splitlines() if ": " in line)
    if not {"reference", "device", "verdict"} <= fields.keys():
        raise ValueError(f"{path.name} does not say its reference, device and verdict")
    reference = CORPUS / "references" / f"{fields['reference']}.py"
    return Entry(path, path.parent.name, reference, fields["device"], fields["verdict"], fields.get("passes", ""))


ENTRIES = [read(path) for kind in VERDICTS for path in sorted((CORPUS / kind).glob("*.py"))]
HERE = [entry for entry in ENTRIES if entry.device in (DEVICE, "both")]


def sample(seed: int = 0) -> set[str]:
    """Names of the candidates of a quick run on a CPU."""
    chance = random.Random(seed)
    here = [e for e in ENTRIES if e.device != "cuda" and not e.passes]
    fitting = [[e.name for e in here if e.kind == kind] for kind in VERDICTS]
    return {name for names in fitting for name in chance.sample(names, min(QUICK // 2, len(names)))}


def marked(entry: Entry) -> object:
    marks = [pytest.mark.gpu] if entry.device == "cuda" else []
    if DEVICE == "cpu" and entry.device != "cuda" and entry.name not in sample():
        marks.append(pytest.mark.slow)
    if entry.passes:
        marks.append(pytest.mark.xfail(reason=entry.passes, strict=True))
    return pytest.param(entry, id=entry.name, marks=marks)


@pytest.mark.parametrize("entry", [marked(entry) for entry in ENTRIES])
def test_a_candidate_gets_the_verdict_it_must_get(entry: Entry) -> None:
    report = entry.run()
    assert entry.fits(report.verdict), f"{report.verdict.value}: {report.reason}"


def test_the_corpus_is_well_formed() -> None:
    for entry in ENTRIES:
        assert entry.reference.is_file(), entry
        assert entry.device in ("cpu", "cuda", "both"), entry
        assert entry.verdict in VERDICTS[entry.kind], entry
    assert len({entry.path.stem for entry in ENTRIES}) == len(ENTRIES)


def main(arguments: list[str]) -> int:
    """Run the candidates of these names, or all that work here, and write what they got."""
    out = next((Path(a) for a in arguments if a.endswith(".json")), None)
    names = [a for a in arguments if not a.endswith(".json")]
    rows = []
    for entry in HERE:
        if names and not any(name in entry.name for name in names):
            continue
        begin = time.monotonic()
        report = entry.run()
        speedup = report.timing["speedup"] if report.timing else None
        row = {
            "name": entry.name,
            "must": entry.verdict,
            "got": report.verdict.name,
            "fits": entry.fits(report.verdict),
            "speedup": speedup,
            "seconds": round(time.monotonic() - begin, 1),
            "reason": report.reason,
        }
        rows.append(row)
        ratio = f"{speedup:.2f}x" if speedup else ""
        print(
            f"{'ok    ' if row['fits'] else 'MISSED'} {entry.name:34} {entry.verdict:11} {row['got']:16} {ratio:7}",
            end="",
        )
        print(f"{row['seconds']:5.1f} s  {report.reason[:70]}", flush=True)
    cheats, honest = ([row for row in rows if row["name"].startswith(kind)] for kind in VERDICTS)
    table = {
        "device": DEVICE,
        "torch": torch.__version__,
        "cheats": len(cheats),
        "caught": sum(row["fits"] for row in cheats),
        "missed": [row["name"] for row in cheats if not row["fits"]],
        "known_to_pass": [entry.name for entry in HERE if entry.passes],
        "honest": len(honest),
        "false_alarms": [row["name"] for row in honest if not row["fits"]],
        "inconclusive": sum(row["got"] in ("INCONCLUSIVE", "SUSPECT") for row in honest),
        "rows": rows,
    }
    print(json.dumps({key: value for key, value in table.items() if key != "rows"}, indent=1))
    if out is not None:
        out.write_text(json.dumps(table, indent=1) + "\n")
    return 0 if all(row["fits"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
