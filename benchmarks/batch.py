"""Verifies 60 generated candidates for one reference as a batch: python benchmarks/batch.py [-o FILE.json] [NAME...].

With --candidates N, copies of the right, slow and wrong ones are added, each in a file of its own.

The reference is relu(A.T @ B.T) of 1024 x 2048 x 1024, which takes about 100 us on an H200, or of 64 x 80 x 96 on a CPU. The
candidates are those of tests/support/verify/many.py: right and slow, right and fast, wrong in many ways, three that hang, three
that crash, three that do not build. The record has each candidate's verdict and the verdicts that it may get, the seconds of the
whole run, candidates a minute, and how many were lost or got a wrong verdict. The rate is of one run from beginning to end, so
no results are stored for a later run to continue with.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import verify_runs

from mm32.verify import Verdict
from mm32.verify.batch.jobs import Pair

verify_runs.find_tests()
from support.verify import many  # noqa: E402

BATCHES = 300.0  # seconds for one step of a candidate: the time limit of a batch that sets none
SIZES = {"cuda": (1024, 2048, 1024), "cpu": many.SIZES}
SEED = 0


def more(folder: Path, expected: dict[str, set[Verdict]], count: int) -> dict[str, set[Verdict]]:
    """Return `expected` with copies of its files added, up to `count`; none are of files that hang, crash or do not build."""
    names = random.Random(SEED).sample(kept := [name for name in expected if name[0] in "rsw"], len(kept))
    made = dict(expected)
    for number in range(len(expected), count):
        name = names[(number - len(expected)) % len(names)]
        copy = f"{name.removesuffix('.py')}-{number}.py"
        (folder / copy).write_text(f"# {number}\n{(folder / name).read_text()}")
        made[copy] = expected[name]
    return made


def expected_here(expected: dict[str, set[Verdict]]) -> dict[str, set[Verdict]]:
    """Return `expected`; on Hopper, mm32's own kernels have to be FASTER."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        return expected
    return expected | {f"r_{name}.py": {Verdict.FASTER} for name in many.OWN}


def method(candidates: int, timeout: float, limit: float | None) -> str:
    """Return a sentence that says what was run, and with which limits."""
    step = "as batches have it" if timeout == BATCHES else f"where batches have {BATCHES:g} s"
    whole = "and no limit for the whole" if limit is None else f"and a limit of {limit:g} s for the whole"
    return (
        f"{candidates} generated candidates for one reference as one batch, with a time limit of {timeout:g} s for each step "
        f"of a candidate, {step}, {whole}"
    )


def summary(rows: Sequence[dict[str, Any]], of: int, seconds: float) -> dict[str, Any]:
    """Return the figures of a run. `rate`: candidates a minute, all included; their seconds overlap, so the sum gives no rate."""
    return {
        "candidates": of,
        "lost": of - len(rows),
        "wrong": sum(not row["fits"] for row in rows),
        "seconds": round(seconds, 1),
        "building": round(sum(row["building"] for row in rows), 1),
        "rate": round(60 * len(rows) / seconds, 2),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="candidates with one of these in their names; default all"
    )
    parser.add_argument("--candidates", type=int, default=60, metavar="N", help="60 or more (60)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.json", help="write the record, after each result")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="then end: what is not done is lost")
    parser.add_argument(
        "--timeout",
        type=float,
        default=BATCHES,
        metavar="SECONDS",
        help=f"of one step of a candidate ({BATCHES:g}, as batches have it)",
    )
    options = parser.parse_args(arguments)
    sizes = SIZES[verify_runs.DEVICE]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        reference, candidates, expected = many.write(Path(folder), sizes, more=True)
        expected = more(candidates, expected_here(expected), options.candidates)
        names = [name for name in expected if not options.names or any(part in name for part in options.names)]
        if not names:
            parser.error(f"no candidate has {' or '.join(options.names)} in its name: they are {', '.join(expected)}")
        kept = verify_runs.Record("batch", method(len(names), options.timeout, options.limit), options.output)
        random.Random(SEED).shuffle(names)
        names.sort(key=lambda name: name[0] != "h")  # those that hang come first: at the end, all would wait for them
        run = verify_runs.Run(options.limit, None, timeout=options.timeout)
        begin = time.monotonic()
        said: dict[str, Any] = {}
        for report in run.reports([Pair(reference, candidates / name, name) for name in names]):
            name = Path(report.candidate).name
            fits = report.verdict in expected[name]
            wanted = sorted(verdict.name for verdict in expected[name])
            result = verify_runs.outcome(report)
            rows.append({"name": name, "expected": wanted, "fits": fits, **result, "results": {}})
            print(verify_runs.line(name, result, fits), flush=True)
            said = summary(rows, len(names), time.monotonic() - begin)
            kept.write(rows, sizes=list(sizes), timeout=options.timeout, limit=options.limit, summary=said)
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in said.items()))
    return int(not said or bool(said["lost"] or said["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
