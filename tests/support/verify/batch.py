"""What tests of batches share."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from mm32.verify import Verdict
from mm32.verify.batch import table
from mm32.verify.batch.jobs import Options, in_folder, make
from mm32.verify.batch.store import Store

WHO = {"name": "w1", "host": "h1", "boot": "b", "pid": 1, "started": 0.0, "kind": "worker", "cards": ["h1:cpu"]}
OTHER = {**WHO, "name": "w2", "host": "h2", "cards": ["h2:cpu"]}


def opened(scripts: tuple[Path, Path], folder: Path, lease_s: float = 100.0) -> Store:
    found = Store(folder, create=True, lease_s=lease_s)
    found.add(make(in_folder(*scripts), Options()))
    return found


def old(path: Path, seconds: float = 1000) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def row(verdict: Verdict, speedup: float | None = None, low: float | None = None, **fields: Any) -> table.Row:
    return table.Row("id", "name.py", verdict, "", 1.0, speedup, low, low and 2 * low, **fields)
