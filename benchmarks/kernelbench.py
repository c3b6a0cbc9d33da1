"""Verifies KernelBench's problems against themselves and cheats: python benchmarks/kernelbench.py PROBLEMS [-o FILE.json].

PROBLEMS is KernelBench's folder with level1, level2, level3. Each problem of a sample, in its own size, is compared with
    self      itself, its class renamed: has to be the same, and neither faster nor slower
    compiled  itself by torch.compile, whose kernels round differently: has to be the same
    zeros     a copy that answers zeros after some calls: must not be the same
    stale     a copy that answers its first output again after some calls: must not be the same
The honest copies come first, with levels alternating; cheats are made of problems whose self copy got a verdict. With --store,
a run that was stopped, by --limit or otherwise, continues where it was, even if scripts and store have been moved. Prints a line
for each result, and exits with 1 if one is not as it has to be. Uses all cards. On a CPU, where these sizes take hours, it warns.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.util
import io
import itertools
import random
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import verify_runs

from mm32.verify import Verdict
from mm32.verify.batch.jobs import Pair
from mm32.verify.batch.kernelbench import problems_of

METHOD = (
    "mm32 verify of KernelBench's problems in their own sizes, a sample of each level by a seed, each against itself with its "
    "class renamed (self), against itself by torch.compile (compiled), and against copies that from a drawn call on answer "
    "zeros, or their first output again (zeros, stale)"
)
KINDS = ("self", "compiled", "zeros", "stale")
AFTER = (3, 20)  # a cheat answers correctly for a number of calls drawn from this range
TIMEOUT = 120.0  # seconds for any one step of a candidate
COMPILED = """

class ModelNew(RightModel):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.compile()
"""
CHEAT = """
import torch
import torch.utils._pytree


class ModelNew(RightModel):
    def forward(self, *args, **kwargs):
        KEPT["calls"] += 1
        if KEPT["calls"] > {after}:
            return KEPT["answer"]
        output = super().forward(*args, **kwargs)
        if "answer" not in KEPT:
            KEPT["answer"] = torch.utils._pytree.tree_map_only(torch.Tensor, torch.{make}, output)
        return output


KEPT = {{"calls": 0}}
"""


@dataclass(frozen=True)
class Problem:
    level: int
    path: Path

    @property
    def name(self) -> str:
        return f"level{self.level}/{self.path.name}"


def sample(folder: Path, levels: Sequence[int], size: int, seed: int) -> list[Problem]:
    """Return `size` problems, equally many of each level, alternating.

    In each level, a larger sample begins with the problems of a smaller one.
    """
    share, more = divmod(size, len(levels))
    drawn = []
    for i, level in enumerate(levels):
        found = [Problem(level, path) for _, path in sorted(problems_of(folder, level).items())]
        random.Random(f"{seed} level{level}").shuffle(found)
        drawn.append(found[: share + (i < more)])
    return [one for turn in itertools.zip_longest(*drawn) for one in turn if one is not None]


def missing(text: str) -> list[str]:
    """Return the modules that a script imports at its top level and that are not installed."""
    names = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return sorted(name for name in names if importlib.util.find_spec(name) is None)


def renamed(text: str, name: str) -> str:
    """Return the script with its class Model renamed. Words in comments and strings, and attributes, stay."""
    lines = text.splitlines(keepends=True)
    before = ""
    places = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string == "Model" and before != ".":
            places.append(token.start)
        before = token.string
    for row, column in reversed(places):
        old = lines[row - 1]
        lines[row - 1] = old[:column] + name + old[column + len("Model") :]
    return "".join(lines)


def candidate(problem: Problem, text: str, kind: str, seed: int) -> tuple[str, int | None]:
    """Return the script of a copy, and how many calls a cheat answers correctly (None for an honest copy)."""
    if kind == "self":
        return renamed(text, "ModelNew"), None
    if kind == "compiled":
        return renamed(text, "RightModel") + COMPILED, None
    after = random.Random(f"{seed} {problem.name} {kind}").randint(*AFTER)
    make = {"zeros": "zeros_like", "stale": "clone"}[kind]
    return renamed(text, "RightModel") + CHEAT.format(after=after, make=make), after


def fits(kind: str, verdict: Verdict) -> bool | None:
    """Return whether a copy of this kind may get the verdict; None if the verdict says nothing about the copy."""
    if not verdict.of_candidate:
        return None
    if kind == "self":
        return verdict.same and verdict not in (Verdict.FASTER, Verdict.SLOWER)
    if kind == "compiled":
        return verdict.same
    return not verdict.same


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return, for each kind, how many were verified, how many got each verdict, and which are not as they have to be."""
    found: dict[str, Any] = {"problems": len(rows), "not installed": sum("needs" in row for row in rows)}
    for kind in KINDS:
        done = [(row, row["results"][kind]) for row in rows if kind in row["results"]]
        found[kind] = {
            "done": len(done),
            "verdicts": dict(Counter(result["verdict"] for _, result in done)),
            "missed": [f"level{row['level']}/{row['problem']}" for row, result in done if result["fits"] is False],
        }
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "problems", type=Path, metavar="PROBLEMS", help="KernelBench's folder with level1, level2, level3"
    )
    parser.add_argument("--sample", type=int, default=60, metavar="N", help="problems, as many of each level (60)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the sample and of the cheats (0)")
    parser.add_argument("--levels", default="1,2,3", metavar="L,...", help="default 1,2,3")
    parser.add_argument(
        "--only", metavar="KIND", choices=KINDS, action="append", help=f"these copies only: {', '.join(KINDS)}"
    )
    verify_runs.add_options(parser)
    options = parser.parse_args(arguments)
    levels = [int(level) for level in options.levels.split(",")]
    for level in levels:
        if not problems_of(options.problems, level):
            parser.error(
                f"there are no problems in {options.problems / f'level{level}'}: PROBLEMS is KernelBench's folder"
            )
    if verify_runs.DEVICE == "cpu":
        print("no CUDA device: these are a CPU's times, and most problems are too large for one", file=sys.stderr)
    chosen = sample(options.problems, levels, options.sample, options.seed)
    texts = {problem: problem.path.read_text() for problem in chosen}
    rows: dict[Problem, dict[str, Any]] = {}
    for problem, text in texts.items():
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        rows[problem] = {"level": problem.level, "problem": problem.path.name, "sha256": digest, "results": {}}
        if needs := missing(text):
            rows[problem]["needs"] = needs
            print(f"-      {problem.name}: not installed: {', '.join(needs)}", flush=True)
    kept = verify_runs.Record("kernelbench", METHOD, options.output, options.at_once)
    run = verify_runs.Run(options.limit, options.store, options.at_once, timeout=TIMEOUT)

    def write() -> dict[str, Any]:
        made = list(rows.values())
        said = summary(made)
        kept.write(made, sample={"size": options.sample, "seed": options.seed, "levels": levels}, summary=said)
        return said

    with tempfile.TemporaryDirectory() as folder:
        for kinds in (("self", "compiled"), ("zeros", "stale")):
            pairs, of = [], {}
            for problem, kind in itertools.product(chosen, kinds):
                row = rows[problem]
                own = row["results"].get("self")
                hopeless = kinds[0] != "self" and own is not None and own["fits"] is None
                if "needs" in row or hopeless or kind not in (options.only or KINDS):
                    continue
                script, after = candidate(problem, texts[problem], kind, options.seed)
                path = Path(folder) / f"level{problem.level}_{problem.path.stem}_{kind}.py"
                path.write_text(script)
                pairs.append(Pair(problem.path.resolve(), path, path.name))
                of[path.name] = problem, kind, after
            for report in run.reports(pairs):
                problem, kind, after = of[Path(report.candidate).name]
                result = verify_runs.outcome(report) | {"fits": fits(kind, report.verdict)}
                rows[problem]["results"][kind] = result | ({} if after is None else {"after": after})
                print(verify_runs.line(f"{problem.name} {kind}", result, result["fits"]), flush=True)
                write()
    said = write()
    for kind in KINDS:
        print(f"{kind}: {said[kind]['done']} done, {said[kind]['verdicts']}, missed: {said[kind]['missed'] or 'none'}")
    if run.over:
        print(f"ended after {run.seconds:.0f} s, with some left to do: the same command with this store goes on")
    return int(any(said[kind]["missed"] for kind in KINDS))


if __name__ == "__main__":
    sys.exit(main())
