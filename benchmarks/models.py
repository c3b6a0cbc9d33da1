"""Runs the models of examples/models/ on the card here and writes their record: python benchmarks/models.py [-o FILE].

Needs transformers (pip install -e ".[examples]") and a CUDA device; the sizes are for one with 80 GB or more. The record that
README.md and docs/models.md are made from is benchmarks/results/<card>/models.json; after writing it, `make tables`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

import torch

from mm32.bench import models, record

ROOT = Path(__file__).parent.parent
SCRIPTS = ("transformer", "pinn", "gp", "newton_schulz")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, help="file; default benchmarks/results/<card>/models.json")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("benchmarks/models.py needs a CUDA device; torch finds none here", file=sys.stderr)
        return 2
    path = options.output or ROOT / "benchmarks" / "results" / record.folder_of_card() / "models.json"
    sys.path.insert(0, str(ROOT / "examples" / "models"))
    rows = []
    for script in SCRIPTS:
        rows += models.run(importlib.import_module(script).make)
        record.write(path, record.make("models", rows, models.METHOD))
    return 0


if __name__ == "__main__":
    sys.exit(main())
