"""The corpus of candidates that cheat and of honest ones (entries.py): each gets the verdict that it must get.

`python benchmarks/corpus.py` runs all of them as one batch, and records what they got.
"""

from __future__ import annotations

import random

import pytest
import torch

from support.verify.entries import ENTRIES, VERDICTS, Entry

QUICK = 2  # files of a quick run, half of them of each kind; `make test-all` and a run on a GPU take all
pytestmark = pytest.mark.usefixtures("whole_windows")  # cheats count calls
MOSTLY = "mostly, "  # the beginning of the reason of a cheat that a probe's bound catches in some draws
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def sample(seed: int = 5) -> set[str]:
    """Return the names of the candidates of a quick run on a CPU."""
    chance = random.Random(seed)
    here = [e for e in ENTRIES if e.device != "cuda" and not e.passes]
    fitting = [[e.name for e in here if e.kind == kind] for kind in VERDICTS]
    return {name for names in fitting for name in chance.sample(names, min(QUICK // 2, len(names)))}


def marked(entry: Entry) -> object:
    marks = [pytest.mark.gpu] if entry.device == "cuda" else []
    if DEVICE == "cpu" and entry.device != "cuda" and entry.name not in sample():
        marks.append(pytest.mark.slow)
    if entry.passes:
        sure = not entry.passes.startswith(MOSTLY)
        marks.append(pytest.mark.xfail(reason=entry.passes, strict=sure))
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
