"""docs/first.md: the code that it shows is in examples/first/, and gets the verdicts that it says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import torch

from mm32.verify import Verdict, verify

ROOT = Path(__file__).parent.parent.parent
FIRST = ROOT / "examples" / "first"


def test_the_page_shows_the_files() -> None:
    files = {path.name: path.read_text() for path in FIRST.glob("*.py")}
    assert set(files) == {"distances.py", "shortcut.py", "fused.py"}
    text = (ROOT / "docs" / "first.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    assert len(blocks) == 3
    for block, name in zip(blocks, ("distances.py", "shortcut.py", "fused.py"), strict=True):
        assert f"examples/first/{name}" in text
        assert block in files[name]


def test_a_comparison_by_hand_finds_no_difference_in_the_shortcut() -> None:
    torch.manual_seed(1)
    reference, shortcut = (runpy.run_path(str(FIRST / name)) for name in ("distances.py", "shortcut.py"))
    inputs = reference["get_inputs"]()
    wanted, got = reference["Model"]()(*inputs), shortcut["ModelNew"]()(*inputs)
    assert torch.allclose(got, wanted)
    assert not torch.equal(got, wanted)


@pytest.mark.slow
def test_the_shortcut_is_different() -> None:
    report = verify(FIRST / "distances.py", FIRST / "shortcut.py", trials=1, seed=1)
    assert report.verdict is Verdict.DIFFERENT
    assert report.trials[0]["same"]
    # Several probes find it, some of them by 1 or 2 %.
    assert re.search(r"probe '(aligned|moderate|far below|offset)'", report.reason)


@pytest.mark.slow
@pytest.mark.compiler
def test_the_fused_one_is_the_same_and_faster() -> None:
    report = verify(FIRST / "distances.py", FIRST / "fused.py", trials=1, seed=1)
    assert report.verdict is Verdict.FASTER, report.reason
