"""`mm32 bench`: measure a record, or read one from a file, and show it as a table, a plot or JSON."""

from __future__ import annotations

import json as to_json
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from mm32.bench import formats, measure, plots, record, sensors, suite, summary
from mm32.files import unwritable
from mm32.install import pip_install


class NoDevice(RuntimeError):
    """There is no card to measure on."""


class Refused(ValueError):
    """The request cannot be carried out; the message says why, `option` names the option that is to blame, if one is."""

    def __init__(self, message: str, option: str | None = None) -> None:
        super().__init__(message)
        self.option = option


@dataclass(frozen=True)
class Files:
    """The files to write, by the command's option. "-" is standard output, for one of the text formats; None writes nothing."""

    plot: Path | None = None
    json: Path | None = None
    csv: Path | None = None
    markdown: Path | None = None

    def given(self) -> dict[str, Path]:
        return {field.name: path for field in fields(self) if (path := getattr(self, field.name)) is not None}


TEXTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "json": lambda made: to_json.dumps(made, indent=1) + "\n",
    "csv": formats.as_csv,
    "markdown": formats.as_markdown,
}


def bench(shapes: str | None, against: str | None, saved: Path | None, files: Files, energy: bool = False) -> None:
    """Print the table and write the files asked for. If a file goes to standard output, it stands there alone, and the table goes
    to standard error. Raises Refused, before measuring where that is possible, and NoDevice."""
    given = files.given()
    to_stdout = [name for name, path in given.items() if str(path) == "-"]
    for name, path in given.items():
        if name not in to_stdout and (why := unwritable(path)) is not None:
            raise Refused(why, f"--{name}")
    if len(to_stdout) > 1:
        raise Refused(f"one thing can go to standard output, not {' and '.join(f'--{name}' for name in to_stdout)}")
    if files.plot is not None:
        try:
            plots.check(files.plot)
        except ImportError:
            raise Refused(f"--plot needs matplotlib: {pip_install('bench')}", "--plot") from None
        except ValueError as error:
            raise Refused(str(error), "--plot") from None
    if saved is not None:
        if shapes is not None or against is not None or energy:
            raise Refused(
                "--from shows what was measured: --shapes, --against and --energy do not go with it", "--from"
            )
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
        made = measured("quick" if shapes is None else shapes, against, energy)
    console = Console(stderr=bool(to_stdout))
    if not console.is_terminal:
        console.width = max(console.width, 140)  # rich takes a pipe or a file for 80 columns wide
    console.print(summary.table(made))
    for name in (name for name in TEXTS if name in given):
        text = TEXTS[name](made)
        if name in to_stdout:
            sys.stdout.write(text)
            continue
        try:
            given[name].write_text(text, encoding="utf-8")
        except OSError as error:
            raise Refused(f"{given[name]} cannot be written: {error}", f"--{name}") from None
    if files.plot is not None:
        try:
            notes = plots.save(made, files.plot)
        except (OSError, ValueError) as error:
            raise Refused(str(error), "--plot") from None
        console.print(f"wrote {files.plot}" + "".join(f"; {note}" for note in notes), markup=False, highlight=False)


def measured(shapes: str, against: str | None, energy: bool = False) -> dict[str, Any]:
    """Measure the cases and implementations that the two texts name (see `suite.parse`) on torch's current card, and return the
    record. Raises NoDevice if there is no card, and Refused for other names or if `energy` cannot be counted."""
    try:
        cases, names = suite.parse(shapes, against)
    except ValueError as error:
        raise Refused(str(error)) from error
    if not torch.cuda.is_available():
        raise NoDevice("mm32 bench needs a CUDA device; torch finds none here (--from FILE shows a saved record)")
    sensor, said = sensors.of_current_card()
    try:
        if energy and (sensor is None or sensor.energy() is None):
            raise Refused(f"nothing here counts the card's energy ({said}): leave out --energy", "--energy")
        rows = _rows(cases, names, sensor, energy)
    finally:
        if sensor is not None:
            sensor.close()
    return record.make(shapes, rows, sensor=f"none: {said}" if sensor is None else said)


def _rows(
    cases: list[measure.Case], names: list[str], sensor: sensors.Sensor | None, energy: bool
) -> list[dict[str, Any]]:
    """Measure the cases one by one, with progress on standard error, and return their rows."""
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
        for row in measure.measure_all(cases, names, sensor=sensor, energy=energy):
            rows.append(row)
            following = cases[len(rows)].name if len(rows) < len(cases) else "done"
            progress.update(task, advance=1, description=escape(following))
            if not console.is_terminal:
                console.print(f"mm32: {len(rows)}/{len(cases)} {row['case']}", markup=False, highlight=False)
    return rows
