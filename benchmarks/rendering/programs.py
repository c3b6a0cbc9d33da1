"""Tables of whole programs' steps: of the records models.json and programs.json (models.py)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mm32.bench import models, summary

from .columns import Cell, Load, Row, Source, grid, speedup, time


def models_table(load: Load, source: Source) -> str:
    return table(load("models")["rows"]) + source("models")


def programs_table(load: Load, source: Source) -> str:
    made = load("programs")
    return table(made["rows"]) + summed_up(made) + source("programs")


def table(rows: Iterable[Row]) -> str:
    """A line for each program: times, how many of its products mm32 ran, and the errors of each quantity."""

    def step(name: str) -> Cell:
        def cell(row: Row) -> str:
            r = row["results"][name]
            return f"fails: {r['failed']}" if "failed" in r else time(r["seconds"])

        return cell

    def errors(name: str) -> Cell:
        def cell(row: Row) -> str:
            r, quantities = row["results"][name], row["results"]["torch"]["errors"]
            return " <br> ".join("–" if "failed" in r else f"{r['errors'][quantity]:.1e}" for quantity in quantities)

        return cell

    def taken(row: Row) -> str:
        ours = row["results"]["mm32"]
        if "failed" in ours:
            return "–"
        count = sum(ours["kernels"].values())
        others = {tier: calls for tier, calls in models.tiers(ours).items() if tier != "fp16x3"}
        taken = f"{count} of {count + sum(ours['left to torch'].values())}"
        return taken + (f"; {models.counted(others)}" if others else "")

    def model(row: Row) -> str:
        return f"**{row['case']}**: {row['what']}" + (f" ({row['library']})" if "library" in row else "")

    return grid(
        [
            ("model", model),
            ("torch fp32", step("torch")),
            ("mm32", step("mm32")),
            ("mm32 : torch (95 %)", speedup("mm32")),
            ("torch TF32", step("torch-tf32")),
            ("products by mm32", taken),
            ("error of", lambda row: " <br> ".join(row["results"]["torch"]["errors"])),
            ("torch", errors("torch")),
            ("mm32", errors("mm32")),
            ("TF32", errors("torch-tf32")),
        ],
        rows,
    )


def summed_up(made: dict[str, Any]) -> str:
    """Under a table of programs: their geometric mean, the lowest, and what could not be measured, and why."""
    speedups = {row["case"]: row["results"]["mm32"]["speedup"] for row in made["rows"]}
    lowest = min(speedups, key=lambda case: speedups[case])
    mean = summary.geometric_mean(list(speedups.values()))
    left = "; ".join(f"{what} ({each['why']})" for what, each in made["failed"].items())
    return (
        f"\n{len(speedups)} programs: geometric mean of mm32 : torch **{mean:.2f}**, lowest {speedups[lowest]:.2f} ({lowest})."
        + (f" Not measured: {left}." if left else "")
        + "\n"
    )
