"""docs/same.md names every probe: in a row of its tables, or in what a row says about further ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mm32.verify.inputs import catalogue, isolating, probes

PAGE = Path(__file__).parents[3] / "docs" / "same.md"
TEXT = PAGE.read_text().partition("## Probes")[2]
NAMED = {name for cell in re.findall(r"^\| ([^|]+) \|", TEXT, re.M) for name in re.split("[,;] ", cell)}
NAMED |= set(re.findall(r"`([^`]+)`", TEXT))  # probes that come with one that has a row
NAMES = sorted({*catalogue.BY_NAME, *probes.BY_NAME, *(probe.name for probe in isolating.ISOLATING)})


@pytest.mark.parametrize("name", NAMES)
def test_a_probe_is_named(name: str) -> None:
    assert name in NAMED
