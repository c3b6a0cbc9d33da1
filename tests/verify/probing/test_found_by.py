"""Probes that were made for one class of mistakes: each finds a candidate of the corpus that no other probe finds, or few do."""

from __future__ import annotations

import re

import pytest

from mm32.verify.inputs.catalogue import BY_NAME
from support.verify import in_process


@pytest.mark.parametrize(
    ("probe", "cheat"),
    [
        ("opposite inputs", "h_angles_one_side"),
        ("whole range of bytes", "h_mixer_wraps"),
        ("sparse", "h_no_pivot"),
        ("impossible", "h_logaddexp_plain"),
        ("zero input", "h_int8_unguarded"),
    ],
)
def test_the_probe_finds_what_it_was_made_for(probe: str, cheat: str) -> None:
    assert probe in BY_NAME
    path = in_process.CORPUS / "cheats" / f"{cheat}.py"
    named = re.search(r"^reference: (.+)$", path.read_text(), re.M)
    assert named is not None
    verdict, _, report = in_process.compare(in_process.CORPUS / "references" / f"{named[1]}.py", path)
    assert verdict == "DIFFERENT"
    assert probe in [found["name"] for found in report.probes if found.get("status") == "different"]  # type: ignore[attr-defined]
