"""KernelBench's layout, read and written. KernelBench: Ouyang et al., "KernelBench: Can LLMs Write Efficient GPU Kernels?", 2025.

    PROBLEMS/level1/23_Softmax.py                     problem 23 of level 1: a reference
    RUN/level_1_problem_23_sample_0_kernel.py         a candidate for it
    RUN/eval_results.json                             the results: {"23": [{"sample_id": 0, "compiled": ...}]}

Its times are in milliseconds; -1 where there is none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..entry import WrongArgument
from ..verdict import Verdict
from .jobs import Pair
from .table import Row

CANDIDATE = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
# Names that the problems' folder may have; it is looked for in the run's folder and in those above it.
PLACES = ("KernelBench", "kernelbench", "problems")


def find_problems(run: Path) -> Path:
    """Return the folder with level1, level2, ... that belongs to a run's folder. Raises WrongArgument."""
    for folder in (run, *run.resolve().parents):
        for name in PLACES:
            if (folder / name / "level1").is_dir() or (folder / name / "level2").is_dir():
                return folder / name
    raise WrongArgument(f"no KernelBench/level1 beside {run} or above it: --problems names the folder")


def problems_of(problems: Path, level: int) -> dict[int, Path]:
    """Return the problems of a level by number. Raises WrongArgument where two have the same number."""
    found: dict[int, Path] = {}
    for path in sorted((problems / f"level{level}").glob("*.py")):
        number = path.name.split("_")[0]
        if number.isdigit() and (other := found.setdefault(int(number), path)) != path:
            raise WrongArgument(f"{path.parent} has two problems {int(number)}: {other.name} and {path.name}")
    return found


def pairs(run: Path, problems: Path | None = None) -> list[Pair]:
    """Return every candidate of a run with its problem, sorted by level, problem and sample. Raises WrongArgument."""
    where = problems or find_problems(run)
    names = [
        (match, path) for path in sorted(run.iterdir()) if (match := CANDIDATE.fullmatch(path.name)) and path.is_file()
    ]
    if not names:
        raise WrongArgument(f"there is no level_L_problem_P_sample_S_kernel.py in {run}")
    found: dict[tuple[int, ...], Pair] = {}
    levels = {int(match[1]): problems_of(where, int(match[1])) for match, _ in names}
    for match, path in names:
        level, problem, sample = map(int, match.groups())
        if problem not in levels[level]:
            raise WrongArgument(f"{path.name}: there is no problem {problem} in {where / f'level{level}'}")
        place = {"level": level, "problem": problem, "sample": sample}
        pair = Pair(levels[level][problem], path, path.name, place)
        if (other := found.setdefault((level, problem, sample), pair)) is not pair:
            raise WrongArgument(f"{run} has sample {sample} of problem {problem} twice: {other.name} and {path.name}")
    return [found[at] for at in sorted(found)]


def tasks(run_pairs: Sequence[Pair]) -> int:
    """Return how many problems the levels of these candidates have; fast_p is a share of them."""
    folders = {pair.reference.parent for pair in run_pairs}
    return sum(len(problems_of(folder.parent, int(folder.name.removeprefix("level")))) for folder in folders)


def first_samples(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that KernelBench's analysis counts: sample 0 of each problem."""
    return [row for row in rows if row.place.get("sample") == 0]


def result(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record as an entry of eval_results.json.

    `compiled` and `correctness` are also false where the reference, the check or the tool failed; the metadata has the verdict.
    """
    report = record["report"]
    verdict = Verdict[report["verdict"]]
    timing = report.get("timing")
    entry: dict[str, Any] = {
        "sample_id": record["place"].get("sample", 0),
        "compiled": verdict.of_candidate and verdict is not Verdict.NOT_BUILT,
        "correctness": verdict.same,
        "metadata": {
            "hardware": report["environment"].get("card", report["environment"].get("cpu", "")),
            "device": report["environment"].get("device", ""),
            "mm32_verdict": verdict.value,
            "mm32_reason": report["reason"],
            "mm32_schema": report["schema"],
        },
        "runtime": -1.0,
        "runtime_stats": {},
    }
    if timing:
        entry["runtime"], entry["runtime_stats"] = _statistics(timing["candidate"]["rounds_s"])
        entry["ref_runtime"], entry["ref_runtime_stats"] = _statistics(timing["reference"]["rounds_s"])
    return entry


def _statistics(seconds: Sequence[float]) -> tuple[float, dict[str, Any]]:
    times = [1e3 * float(one) for one in seconds]
    mean = sum(times) / len(times)
    spread = (sum((one - mean) ** 2 for one in times) / len(times)) ** 0.5
    return mean, {"mean": mean, "std": spread, "min": min(times), "max": max(times), "num_trials": len(times)}


def results(records: Sequence[dict[str, Any]]) -> dict[int, str]:
    """Return the text of an eval_results.json for each level, because KernelBench's file has no place for the level."""
    levels: dict[int, dict[int, list[dict[str, Any]]]] = {}
    for record in sorted(records, key=lambda record: tuple(record["place"].values())):
        place = record["place"]
        levels.setdefault(place["level"], {}).setdefault(place["problem"], []).append(result(record))
    return {
        level: json.dumps({str(number): entries for number, entries in found.items()}, indent=4, allow_nan=False)
        for level, found in levels.items()
    }
