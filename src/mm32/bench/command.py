"""`mm32 bench`: measure a record, or read one from a file, and show it as a table, a plot or JSON."""

from __future__ import annotations

import json as to_json
import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from mm32.bench import measure, plots, record, suite, summary
from mm32.files import unwritable
from mm32.install import pip_install


class NoDevice(RuntimeError):
    """There is no card to measure on."""


class Refused(ValueError):
    """The request cannot be carried out; the message says why, `option` names the option that is to blame, if one is."""

    def __init__(self, message: str, option: str | None = None) -> None:
        super().__init__(message)
        self.option = option


def bench(shapes: str | None, against: str | None, saved: Path | None, plot: Path | None, json: Path | None) -> None:
    """Prints the table and writes the files asked for. With `json` "-" the JSON goes to standard output, the table to standard
    error. Raises Refused, before measuring where that is possible, and NoDevice."""
    for option, path in (("--plot", plot), ("--json", json)):
        if path is not None and str(path) != "-" and (why := unwritable(path)) is not None:
            raise Refused(why, option)
    if plot is not None:
        try:
            plots.check(plot)
        except ImportError:
            raise Refused(f"--plot needs matplotlib: {pip_install('bench')}", "--plot") from None
        except ValueError as error:
            raise Refused(str(error), "--plot") from None
    if saved is not None:
        if shapes is not None or against is not None:
            raise Refused("--from shows what was measured: --shapes and --against do not go with it", "--from")
        try:
            made = record.read(saved)
        except (OSError, ValueError) as error:
            raise Refused(str(error), "--from") from None
        if not summary.is_of_products(made):
            name = made.get("name", "unknown name")
            raise Refused(
                f"{saved} is a record of {name!r}: bench --from shows records of products, as bench --json writes them",
                "--from",
            )
    else:
        made = measured("quick" if shapes is None else shapes, against)
    to_stdout = json is not None and str(json) == "-"
    console = Console(stderr=to_stdout)
    if not console.is_terminal:
        console.width = max(console.width, 120)  # rich takes a pipe or a file for 80 columns wide
    console.print(summary.table(made))
    if json is not None:
        if to_stdout:
            sys.stdout.write(to_json.dumps(made, indent=1) + "\n")
        else:
            try:
                record.write(json, made)
            except OSError as error:
                raise Refused(f"{json} cannot be written: {error}", "--json") from None
    if plot is not None:
        try:
            notes = plots.save(made, plot)
        except (OSError, ValueError) as error:
            raise Refused(str(error), "--plot") from None
        console.print(f"wrote {plot}" + "".join(f"; {note}" for note in notes), markup=False, highlight=False)


def measured(shapes: str, against: str | None) -> dict[str, Any]:
    """The record of the cases and implementations that the two texts name (see `suite.parse`), measured on torch's current
    card. Raises NoDevice where there is none."""
    try:
        cases, names = suite.parse(shapes, against)
    except ValueError as error:
        raise Refused(str(error)) from None
    if not torch.cuda.is_available():
        raise NoDevice("mm32 bench needs a CUDA device; torch finds none here (--from FILE shows a saved record)")
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    rows: list[dict[str, Any]] = []
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(escape(cases[0].name), total=len(cases))
        for row in measure.measure_all(cases, names):
            rows.append(row)
            following = cases[len(rows)].name if len(rows) < len(cases) else "done"
            progress.update(task, advance=1, description=escape(following))
            if not console.is_terminal:
                console.print(f"mm32: {len(rows)}/{len(cases)} {row['case']}", markup=False, highlight=False)
    return record.make(shapes, rows)
