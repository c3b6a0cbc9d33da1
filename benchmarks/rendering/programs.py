"""Tables of whole programs' steps, from the records models.json and programs.json (models.py) and parallel-<cards>.json
(parallel_steps.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mm32.bench import models, summary

from .columns import Cell, Load, Row, Source, grid, markdown, speedup, time


def models_table(load: Load, source: Source) -> str:
    return table(load("models")["rows"]) + source("models")


def programs_table(load: Load, source: Source) -> str:
    made = load("programs")
    return table(made["rows"]) + summed_up(made) + source("programs")


def table(rows: Iterable[Row]) -> str:
    """Return a table with a line for each program: times, how many of its products mm32 ran, and the errors of each quantity."""

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
    """Return what stands under a table of programs: the geometric mean, the lowest speedup, and what was not measured and why."""
    speedups = {row["case"]: row["results"]["mm32"]["speedup"] for row in made["rows"]}
    lowest = min(speedups, key=lambda case: speedups[case])
    mean = summary.geometric_mean(list(speedups.values()))
    left = "; ".join(f"{what} ({each['why']})" for what, each in made["failed"].items())
    return (
        f"\n{len(speedups)} programs: geometric mean of mm32 : torch **{mean:.2f}**, lowest {speedups[lowest]:.2f} ({lowest})."
        + (f" Not measured: {left}." if left else "")
        + "\n"
    )


# ---------------------------------------------------------------------------------------------------------------------
# Over several cards

PARALLEL = ("mlp", "blocks", "async", "fsdp")  # the programs of parallel_steps.py


def parallel(cards: int) -> Callable[[Load, Source], str]:
    """Return the table of steps over so many cards.

    Below it are what async tensor parallel hides, what mm32 saves of FSDP2's step, and what is missing.
    """

    def make(load: Load, source: Source) -> str:
        name = f"parallel-{cards}"
        by_program = {row["case"]["program"]: row for row in load(name)["rows"]}
        text = markdown(
            [
                "step",
                "by",
                "time",
                "torch : this (95 %)",
                "error of the output",
                "of the gradient",
                "of the worst parameter's",
            ],
            (line for row in by_program.values() for line in _steps(row)),
        )
        if "async" in by_program:
            text += "\n" + _hidden(by_program["async"])
        if "fsdp" in by_program:
            text += "\n" + _saved(by_program["fsdp"])
        missing = [program for program in PARALLEL if program not in by_program]
        if missing:
            text += f"\nNot measured: {', '.join(missing)}.\n"
        return ("" if cards == 2 else f"{cards} cards:\n\n") + text + source(name)

    return make


def _steps(row: Row) -> Iterable[list[str]]:
    for name, r in row["results"].items():
        judged = [f"{r['errors'][of]:.1e}" for of in ("output", "gradient", "worst parameter")]
        program = f"**{row['case']['program']}**: {row['what']}" if name == "torch" else ""
        yield [program, name, time(r["seconds"]), speedup(name)(row), *judged]
    for name, why in row["unavailable"].items():
        yield ["", name, f"not measured: {why}", "–", "–", "–", "–"]


def _hidden(row: Row) -> str:
    """Return the table of how much of the exposed communication async tensor parallel hides."""
    results, exposed = row["results"], row["exposed"]

    def line(step: str) -> list[str]:
        by, _, how = step.partition(",")
        hidden = [
            f"{name.removeprefix(by).removesuffix(f',{how}').strip(' ,')}: {time(results[name]['seconds'])}, **{share:.2f}**"
            for name, share in row["hidden"].items()
            if name.split()[0] == by and name.endswith(", in a graph") == bool(how)
        ]
        nothing = time(row["beside"][f"{by} nothing sent{step.removeprefix(by)}"]["seconds"])
        return [step, time(results[step]["seconds"]), nothing, time(exposed[step]), "; ".join(hidden) or "not measured"]

    heads = ["async", "step", "with nothing sent", "exposed communication", "with async tensor parallel, share hidden"]
    return markdown(heads, (line(step) for step in exposed))


def _saved(row: Row) -> str:
    """Return the table of what mm32 saves of FSDP2's step, beside what it saves of the step's products."""
    saved, products = row["saved"], row["products"]["seconds"]
    sent = {by: row["collectives"][by] for by in ("torch", "mm32")}

    def communication(by: str) -> str:
        of = sent[by]
        return (
            f"not measured ({of['failed']})" if "failed" in of else f"{time(of['seconds'])} in {of['kernels']} kernels"
        )

    lines = [
        [by, time(row["results"][by]["seconds"]), time(row["beside"][f"{by} alone"]["seconds"]), time(products[by]),
         time(row["exposed"][by]), communication(by)]
        for by in ("torch", "mm32")
    ]  # fmt: skip
    lines.append(["saved", *(f"**{time(saved[of])}**" for of in ("step", "step alone", "products")), "", ""])
    heads = [
        "fsdp",
        "step",
        "a card by itself",
        "its products alone",
        "exposed communication",
        "NCCL's kernels, waiting too",
    ]
    return markdown(heads, lines)
