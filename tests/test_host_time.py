"""What an eager call costs the host, beside torch's. `python benchmarks/record.py host` records it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mm32.bench import host


@pytest.mark.gpu
def test_a_call_costs_little_on_the_host(record_property: Callable[[str, object], None]) -> None:
    """12 us at most beside the launches, as docs/kernels.md has it. On a machine that other tests keep busy everything takes
    longer: as much more is allowed as torch's own call takes beyond 10 us."""
    (row,) = host.measure(rounds=30)
    times = {name: result["seconds"] for name, result in row["results"].items()}
    for name, seconds in times.items():
        record_property(name, seconds)
    load = max(1.0, times["torch"] / 10e-6)
    assert times["simt"] - row["results"]["simt"]["launches"] * times["launch"] <= 12e-6 * load, times
