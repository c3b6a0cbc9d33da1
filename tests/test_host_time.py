"""What an eager call costs the host, beside torch's. `python benchmarks/record.py host` records it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mm32.bench import host


@pytest.mark.gpu
def test_a_call_costs_little_on_the_host(record_property: Callable[[str, object], None]) -> None:
    """At most 12 us beside one launch, 20 where there is a workspace; docs/kernels.md has what was measured. On a machine that
    other tests keep busy everything takes longer: as much more is allowed as torch's own call takes beyond 10 us. A small product
    that mm32.enable() leaves to torch: at most 6 us more than torch's."""
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
