"""Runs a set of cases on the card here and writes its record: python benchmarks/record.py main [shapes auto] [-o FOLDER].

Needs a CUDA device. README.md and docs/ are made from the records in benchmarks/results/<card>/: run `make tables` after writing
them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from mm32.bench import host, measure, record, sensors, suite, summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "sets", nargs="+", choices=[*sorted(suite.SETS), "host"], help="host: what a call costs the host"
    )
    parser.add_argument("-o", "--output", type=Path, help="folder; default benchmarks/results/<card>")
    parser.add_argument("--rounds", type=int, default=measure.ROUNDS)
    parser.add_argument(
        "--energy", action="store_true", help="a call's energy too: half a second and more for each time"
    )
    parser.add_argument("--resume", action="store_true", help="only the cases that the record of this card has not got")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("benchmarks/record.py needs a CUDA device; torch finds none here", file=sys.stderr)
        return 2
    folder = options.output or Path(__file__).parent / "results" / record.folder_of_card()
    sensor, said = sensors.of_current_card()
    said = said if sensor is not None else f"none: {said}"
    for name in options.sets:
        if name == "host":
            record.write(folder / "host.json", record.make(name, host.measure(), host.METHOD))
            continue
        cases, implementations = suite.SETS[name]
        try:
            rows = record.to_go_on_with(folder / f"{name}.json").get("rows", []) if options.resume else []
        except ValueError as error:
            parser.error(str(error))
        done = {row["case"] for row in rows}
        cases = [case for case in cases if case.name not in done]
        for row in measure.measure_all(cases, implementations, options.rounds, sensor=sensor, energy=options.energy):
            rows.append(row)
            print(summary.line(row), flush=True)
            record.write(folder / f"{name}.json", record.make(name, rows, sensor=said))
        print(f"the lowest speedups of mm32 in {name}:")
        for row in summary.worst(rows):
            print(f"  {summary.line(row)}")
    if sensor is not None:
        sensor.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
