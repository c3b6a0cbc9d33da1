"""Times mm32 beside torch on every family of data and writes the record: python benchmarks/families.py [--all-shapes].

Needs a CUDA device; takes about a minute on an H200. docs/families.md is made from the record
benchmarks/results/<card>/families.json: run `make tables` after writing it. With --shape or --only, a record is written only if
-o says where.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import torch

from mm32.bench import families, measure, record, summary

SHAPE = (2048, 4096, 2048)
# M, K, N and batch of --all-shapes, which measures families.SOME in them unless --only names others.
FURTHER = ((2048, 2048, 2048, 1), (512, 4096, 512, 1), (2048, 256, 2048, 1), (512, 512, 512, 8))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", type=sizes, metavar="MxKxN", help=f"default {'x'.join(map(str, SHAPE))}")
    parser.add_argument("--only", type=chosen, metavar="NAME,...", help="these families only")
    parser.add_argument("--all-shapes", action="store_true", help="further shapes too, some families each")
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="default benchmarks/results/<card>")
    parser.add_argument("--rounds", type=int, default=measure.ROUNDS)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("benchmarks/families.py needs a CUDA device; torch finds none here", file=sys.stderr)
        return 2
    folder = options.output
    if folder is None and options.shape is None and options.only is None:
        folder = Path(__file__).parent / "results" / record.folder_of_card()
    some = options.only or families.named(families.SOME)
    plan = [(family, (*(options.shape or SHAPE), 1)) for family in options.only or families.FAMILIES]
    plan += [(family, sizes) for sizes in FURTHER if options.all_shapes for family in some]
    rows: list[summary.Row] = []
    for family, (m, k, n, batch) in plan:
        rows.append(families.measure(family, m, k, n, batch, options.rounds))
        torch.cuda.empty_cache()
        if len(families.by_shape(rows)) > len(families.by_shape(rows[:-1])):
            print(f"{families.shape(rows[-1])}: torch's time; errors normwise / componentwise, in units of 2^-24")
        print(families.line(rows[-1]), flush=True)
        if folder is not None:
            made = record.make("families", rows, families.METHOD)
            record.write(folder / "families.json", made | {"geometric_means": families.geometric_means(rows)})
    means = families.geometric_means(rows)
    for shape, of_shape in families.by_shape(rows).items():
        worst = summary.worst(of_shape)[0]
        print(
            f"{shape}, {len(of_shape)} families: geometric mean of mm32 : torch {means[shape]['mm32']:.2f}, of TF32 : torch "
            f"{means[shape]['torch-tf32']:.2f}; lowest {worst['results']['mm32']['speedup']:.2f} ({worst['family']}); "
            f"errors larger than torch's: {', '.join(r['family'] for r in of_shape if not r['keeps']) or 'none'}"
        )
    return 0


def sizes(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[1-9]\d+(x[1-9]\d+){2}", text) or min(map(int, text.split("x"))) < 16:
        raise argparse.ArgumentTypeError(f"{text!r} is no shape MxKxN of sizes from 16 on, such as 2048x4096x2048")
    return tuple(map(int, text.split("x")))


def chosen(text: str) -> list[families.Family]:
    try:
        return families.named([name.strip() for name in text.split(",")])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
