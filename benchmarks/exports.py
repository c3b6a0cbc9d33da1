"""Exports every kernel for the reference problems and verifies each file: python benchmarks/exports.py [-o FILE.json] [NAME...].

Needs a CUDA device. The files are one batch: each is built on the host, which takes a core a minute, while others are verified.
With --resume, files that the record already has are not verified again. Prints one line for each file. Exits with 1 if any
verdict is not "same" or the limit left files unverified, and with 2 without a CUDA device.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import verify_runs

from mm32.bench import record
from mm32.export import export
from mm32.plan import KERNELS
from mm32.verify import Verdict
from mm32.verify.batch.jobs import Pair

EXAMPLES = Path(__file__).parent.parent / "examples"
PROBLEMS = {"tt": None, "nt": None, "tn": None, "nn": None, "tt_relu": "relu"}
SIZES = {"m": 2048, "n": 4096, "k": 8192}
METHOD = "mm32 verify of each exported file, as one batch; verdicts as its --json has them"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help=f"default all: {', '.join(KERNELS)}")
    verify_runs.add_options(parser)
    parser.add_argument("--resume", action="store_true", help="verify only what the record of -o lacks")
    parser.add_argument(
        "--builders", type=int, metavar="N", help="files that are built at once; default as batches have it"
    )
    options = parser.parse_args(arguments)
    kernels = options.kernels or list(KERNELS)
    if unknown := sorted(set(kernels) - set(KERNELS)):
        parser.error(f"no kernel {', '.join(unknown)}: they are {', '.join(KERNELS)}")
    if verify_runs.DEVICE != "cuda":
        print("benchmarks/exports.py needs a CUDA device; torch finds none here", file=sys.stderr)
        return 2
    found: dict[tuple[str, str], dict[str, Any]] = {}
    if options.resume:
        if not options.output:
            parser.error("--resume goes on with a record: name it with -o")
        try:
            before = record.to_go_on_with(options.output)
        except ValueError as error:
            parser.error(str(error))
        for row in before.get("rows", []):
            found |= {(row["case"], kernel): result for kernel, result in row["results"].items()}
    with tempfile.TemporaryDirectory() as folder:
        pairs, of = [], {}
        for kernel, problem in itertools.product(kernels, PROBLEMS):
            if (problem, kernel) in found:
                continue
            file = Path(folder) / f"{problem}_{kernel}.py"
            file.write_text(export(problem[:2], **SIZES, activation=PROBLEMS[problem], kernel=kernel))
            pairs.append(Pair(EXAMPLES / f"matmul_{problem}.py", file, file.name))
            of[file.name] = problem, kernel
        run = verify_runs.Run(options.limit, options.store, options.at_once, builders=options.builders)
        for report in run.reports(pairs):
            problem, kernel = of[Path(report.candidate).name]
            verdict = report.verdict
            result = {"kernel": kernel, "exit_code": verdict.exit_code, **verify_runs.outcome(report)}
            found[problem, kernel] = result
            print(verify_runs.line(f"{problem} {kernel}", result, verdict.same), flush=True)
            if options.output:
                record.write(options.output, record.make("exports", rows(found), METHOD))
    print(f"{len(found)} files verified, {len(pairs)} of them asked for in {run.seconds:.0f} s")
    return int(run.over or not all(Verdict[result["verdict"]].same for result in found.values()))


def rows(found: dict[tuple[str, str], dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each problem, with its results in the order of KERNELS."""
    return [
        {"case": problem, "results": {k: found[problem, k] for k in KERNELS if (problem, k) in found}}
        for problem in PROBLEMS
    ]


if __name__ == "__main__":
    sys.exit(main())
