"""Runs whole programs on the card here and writes their record: python benchmarks/models.py [--programs] [-o FILE].

The programs are the four models of examples/models/ or, with --programs, those of examples/programs/, which are other people's.
They need a CUDA device and what `pip install -e ".[examples]"` or ".[programs]" installs. The models' sizes are for a device with
80 GB or more, those of --programs for one with 80 GB. README.md and docs/models.md are made from the records models.json and
programs.json in benchmarks/results/<card>/: run `make tables` after writing one.

A program that fails, or whose library is missing, is recorded with the reason and does not stop the others. The record is written
after each program; `--resume` measures the programs that a run did not reach.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from mm32.bench import models, record, summary

ROOT = Path(__file__).parent.parent
MODELS = ("transformer", "pinn", "gp", "newton_schulz")
PROGRAMS = {  # program -> the package that it is from
    "gaussian_processes": "gpytorch",
    "vision_transformer": "timm",
    "language_models": "transformers",
    "graph_networks": "torch-geometric",
    "equivariant": "e3nn",
    "neural_ode": "torchdiffeq",
    "low_rank": "torch",
    "muon": "torch",
}
BUDGET = 4.0  # seconds of timed rounds for each program; at least three rounds are timed
ENDED = "the run ended while it was measured"


def load(folder: str, name: str) -> ModuleType:
    """Import a script of examples/ by its path, because libraries have modules of the same names."""
    spec = importlib.util.spec_from_file_location(f"{folder}_{name}", ROOT / "examples" / folder / f"{name}.py")
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reason(error: Exception) -> str:
    """Return the type of an error and its first line."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:200]


def measured(name: str, device: str, small: bool) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the rows of a program's models and, by model or program, the reasons why others have none."""
    try:
        version = importlib.metadata.version(PROGRAMS[name])
    except importlib.metadata.PackageNotFoundError:
        return [], {name: f"{PROGRAMS[name]} is not installed"}
    rows, failed = [], {}
    try:
        made = load("programs", name).make(device, small)
    except Exception as error:
        return [], {name: reason(error)}
    while made:
        model = made.pop(0)
        try:
            row = models.report(model, device, BUDGET)
        except Exception as error:
            print(f"{model.name}: {reason(error)}", file=sys.stderr)
            failed[model.name] = reason(error)
        else:
            if why := row["results"]["mm32"].get("failed"):
                failed[model.name] = f"under mm32: {why}"
                continue
            rows.append({**row, "program": name, "library": f"{PROGRAMS[name]} {version}"})
        del model
        gc.collect()
        torch.cuda.empty_cache()
    return rows, failed


def programs(path: Path, chosen: list[str], resume: bool, limit: float, small: bool) -> int:
    """Measure the chosen programs and write their record. Return the exit code: 1 if one of them has no figures."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    kept = record.to_go_on_with(path) if resume or len(chosen) < len(PROGRAMS) else {}
    rows, failed = kept.get("rows", []), kept.get("failed", {})
    by_program = {row["program"] for row in rows} | {each["program"] for each in failed.values()}
    if resume:
        chosen = [name for name in chosen if name not in by_program]
    rows = [row for row in rows if row["program"] not in chosen]
    failed = {what: each for what, each in failed.items() if each["program"] not in chosen}

    def write() -> None:
        rows.sort(key=lambda row: list(PROGRAMS).index(row["program"]))
        record.write(path, {**record.make("programs", rows, models.METHOD), "failed": failed})

    start, late = time.monotonic(), []
    for name in chosen:
        if time.monotonic() - start > limit:
            late.append(name)
            continue
        failed[name] = {"program": name, "why": ENDED}
        write()
        began = time.monotonic()
        new, without = measured(name, device, small)
        del failed[name]
        rows += new
        failed |= {what: {"program": name, "why": why} for what, why in without.items()}
        write()
        print(f"[{name}: {time.monotonic() - began:.0f} s]\n", flush=True)
    if rows:
        speedups = [row["results"]["mm32"]["speedup"] for row in rows]
        mean, lowest = summary.geometric_mean(speedups), min(speedups)
        print(f"{len(rows)} programs: geometric mean of mm32 : torch {mean:.2f}, lowest {lowest:.2f}")
    for what, each in failed.items():
        print(f"not measured: {what}: {each['why']}", file=sys.stderr)
    if late:
        print(f"no time was left for {', '.join(late)}: run it again with --resume", file=sys.stderr)
    return int(bool(failed or late))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", action="store_true", help="those of examples/programs/")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", choices=PROGRAMS, help=f"of the programs: {', '.join(PROGRAMS)}"
    )
    parser.add_argument(
        "--resume", action="store_true", help="of the programs, those that the record has nothing of yet"
    )
    parser.add_argument(
        "--limit", type=float, default=float("inf"), help="seconds after which no further program begins"
    )
    parser.add_argument("--small", action="store_true", help="programs in sizes for a CPU too, to try them; with -o")
    parser.add_argument(
        "-o", "--output", type=Path, help="file; default benchmarks/results/<card>/models.json or programs.json"
    )
    options = parser.parse_args()
    others = options.programs or options.only
    if not others and (options.resume or options.small or options.limit != float("inf")):
        parser.error("--resume, --small and --limit are of --programs")
    if options.small and not options.output:
        parser.error("--small is no record to keep: say with -o where to")
    if not torch.cuda.is_available() and not options.small:
        print("benchmarks/models.py needs a CUDA device; torch finds none here", file=sys.stderr)
        return 2
    name = "programs" if others else "models"
    path = options.output or ROOT / "benchmarks" / "results" / record.folder_of_card() / f"{name}.json"
    if others:
        try:
            return programs(path, options.only or list(PROGRAMS), options.resume, options.limit, options.small)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
    rows = []
    for script in MODELS:
        rows += models.run(load("models", script).make)
        record.write(path, record.make("models", rows, models.METHOD))
    return 0


if __name__ == "__main__":
    sys.exit(main())
