"""Rows of records, and a benchmark that runs without a card."""

from __future__ import annotations

import io
from dataclasses import asdict

import pytest
from rich.console import Console

from mm32 import plan as planning
from mm32.bench import measure
from mm32.bench.measure import Case


def result(seconds: float, base: float, error: float, kernel: str) -> dict:
    speed = base / seconds
    return {
        "seconds": seconds, "low": seconds, "high": seconds, "speedup": speed, "speedup_low": speed, "speedup_high": speed,
        "error": error, "gauge": error / 2**-24, "kernel": kernel,
    }  # fmt: skip


def row(case: Case, **seconds: float) -> dict:
    """Return a row in which each implementation (dashes as underscores) took the given seconds, with an error of 1e-6."""
    results = {
        name.replace("_", "-"): result(taken, seconds["torch"], 1e-6, name.partition("_")[0])
        for name, taken in seconds.items()
    }
    return {
        "case": case.name,
        **asdict(case),
        "rounds": 3,
        "judged_rows": case.m,
        "results": results,
        "unavailable": {},
    }


@pytest.fixture
def on_cpu(monkeypatch):
    """Everything of a measurement but the card: the operands are on the CPU, and the times are made up."""
    times = {"torch": [4.0, 6.0, 5.0], "mm32": [1.0, 2.0, 5.0], "simt": [8.0, 8.0, 8.0]}
    inputs = Case.inputs

    def interleaved(functions, rounds, budget, look):
        for name in functions if look else ():
            look(name)
        return {name: times[name] for name in functions}

    monkeypatch.setattr(Case, "inputs", lambda self: inputs(self, device="cpu"))
    monkeypatch.setattr(measure, "interleave", interleaved)
    monkeypatch.setattr(measure.launch, "card_of", lambda index: planning.H200)


def text(table: object) -> str:
    console = Console(file=io.StringIO(), width=140)
    console.print(table)
    return console.file.getvalue()
