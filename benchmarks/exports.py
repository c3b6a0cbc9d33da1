"""Exports every kernel for the reference problems and verifies each file: python benchmarks/exports.py [-o FILE.json].

Needs a CUDA device. A file takes about a minute, most of it for the compiler. With --part, several processes share the files;
processes on one GPU take turns to measure. Prints one line for each file. Exits with 1 if any verdict is not "same", and with 2
without a CUDA device.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from pathlib import Path

import torch

from mm32 import verify
from mm32.bench import record
from mm32.export import export
from mm32.plan import KERNELS

EXAMPLES = Path(__file__).parent.parent / "examples"
PROBLEMS = {"tt": None, "nt": None, "tn": None, "nn": None, "tt_relu": "relu"}
METHOD = "mm32 verify of each exported file; verdicts as its --json has them"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, help="write the verdicts as a record")
    parser.add_argument("--kernels", default=",".join(KERNELS), metavar="NAME,...", help="of these kernels only")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="the I-th of N equal parts of the files")
    options = parser.parse_args()
    part, parts = (int(x) for x in options.part.split("/"))
    if not torch.cuda.is_available():
        print("benchmarks/exports.py needs a CUDA device; torch finds none here", file=sys.stderr)
        return 2
    rows = {problem: {"case": problem, "results": {}} for problem in PROBLEMS}
    with tempfile.TemporaryDirectory() as folder:
        for kernel, problem in list(itertools.product(options.kernels.split(","), PROBLEMS))[part - 1 :: parts]:
            file = Path(folder) / f"{problem}_{kernel}.py"
            file.write_text(export(problem[:2], m=2048, n=4096, k=8192, activation=PROBLEMS[problem], kernel=kernel))
            report = verify.verify(EXAMPLES / f"matmul_{problem}.py", file)
            verdict = report.verdict
            rows[problem]["results"][kernel] = {
                "kernel": kernel,
                "exit_code": verdict.exit_code,
                "verdict": verdict.name,
            }
            print(f"{problem} {kernel}: exit code {verdict.exit_code}, {verdict.name}", flush=True)
    if options.output:
        record.write(options.output, record.make("exports", list(rows.values()), METHOD))
    results = [result for row in rows.values() for result in row["results"].values()]
    return int(not all(verify.Verdict[result["verdict"]].same for result in results))


if __name__ == "__main__":
    sys.exit(main())
