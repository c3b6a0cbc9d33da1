"""What an eager call costs the host, compared with torch's. `python benchmarks/record.py host` records it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mm32.bench import host


@pytest.mark.gpu
def test_a_call_costs_little_on_the_host(record_property: Callable[[str, object], None]) -> None:
    """Beside its launches a call takes at most 12 us if there is one launch, and 20 us if a workspace needs several;
    docs/kernels.md has the measured times. A small product that mm32.enable() leaves to torch takes at most 6 us more than
    torch's. On a machine that other tests keep busy everything takes longer, so these bounds grow in proportion if torch's own
    call takes more than 10 us."""
    (row,) = host.measure(rounds=30)
    results = row["results"]
    for name, result in results.items():
        record_property(name, result["seconds"])
    load = max(1.0, results["torch"]["seconds"] / 10e-6)
    assert results["enabled"]["seconds"] - results["torch"]["seconds"] <= 6e-6 * load, results
    for name in results.keys() - {"torch", "launch", "enabled"}:
        launches = results[name]["launches"]
        beside = results[name]["seconds"] - launches * results["launch"]["seconds"]
        assert beside <= (12e-6 if launches == 1 else 20e-6) * load, (name, results)
