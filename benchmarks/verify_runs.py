"""What batch.py, corpus.py, exports.py, kernelbench.py and power.py share: they run candidates through verify_many within a time
limit, and write a record after each result."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from mm32 import verify
from mm32.bench import record
from mm32.verify.batch.jobs import Options, Pair
from mm32.verify.batch.run import Batch, Reports
from mm32.verify.batch.worker import RUNNERS
from mm32.verify.session import WAITING
from mm32.verify.text import shortened

SLOWEST = 5  # the number of probes whose seconds a row has: the slowest ones
TESTS = Path(__file__).parent.parent / "tests"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def find_tests() -> None:
    """Make the modules of tests/support importable, which the scripts to verify come from."""
    if str(TESTS) not in sys.path:
        sys.path.append(str(TESTS))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.json", help="write the record, after each result")
    parser.add_argument(
        "--limit", type=float, metavar="SECONDS", help="then end: what is not done is left to a next run"
    )
    parser.add_argument(
        "--store", type=Path, metavar="FOLDER", help="kept there, a next run goes on where this one was"
    )
    parser.add_argument(
        "--at-once",
        type=int,
        default=RUNNERS,
        metavar="N",
        help="verifications on a card (%(default)s); with 1, seconds are those of `mm32 verify` by itself",
    )


class Run:
    """Verifies candidates, pair after pair, on all cards. `reports` may be called several times within one limit."""

    def __init__(self, limit: float | None, store: Path | None, at_once: int = RUNNERS, **options: Any):
        self.begin = time.monotonic()
        self.limit, self.store, self.at_once, self.options = limit, store, at_once, options
        self.over = False  # the limit was reached before all were done

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begin

    def reports(self, pairs: Sequence[Pair]) -> Iterator[verify.Report]:
        """Yield reports as they are done; those that a store has from earlier runs come first."""
        left = None if self.limit is None else self.limit - self.seconds
        if not pairs or (left is not None and left <= 0):
            self.over = self.over or bool(pairs)
            return
        done = 0
        with self._begun(pairs) as found:
            timer = threading.Timer(left, found.stop) if left is not None else None
            if timer is not None:
                timer.daemon = True
                timer.start()
            try:
                for report in found:
                    done += 1
                    yield report
            finally:
                if timer is not None:
                    timer.cancel()
            self.over = self.over or done < len(found)

    def _begun(self, pairs: Sequence[Pair]) -> Reports:
        if self.at_once == RUNNERS:
            return verify.verify_many(pairs, store=self.store, **self.options)
        builders = self.options.get("builders")
        options = Options(**{name: value for name, value in self.options.items() if name != "builders"})
        return Reports(Batch(pairs, options, self.store, builders=builders, runners=self.at_once))


class Record:
    """A record that is rewritten after each result. Without a path it is not written."""

    def __init__(self, name: str, method: str, path: Path | None, at_once: int = RUNNERS):
        self.made, self.path = record.make(name, [], method), path
        self.made |= {"cards": torch.cuda.device_count(), "at_once": at_once}

    def write(self, rows: list[dict[str, Any]], **fields: Any) -> None:
        if self.path is not None:
            record.write(self.path, self.made | fields | {"rows": rows})


def outcome(report: verify.Report) -> dict[str, Any]:
    """Return what a row has of a report.

    `seconds` are without `building`, the candidate's loading and compiling, and without `waiting` for other candidates of the
    batch that use the card.
    """
    timing = report.timing or {}
    waiting = report.stages.get(WAITING, 0.0)
    probes = sorted(report.probes, key=lambda probe: -float(probe.get("seconds", 0.0)))[:SLOWEST]
    return {
        "verdict": report.verdict.name,
        "speedup": timing.get("speedup"),
        "interval": timing.get("interval"),
        "seconds": round(max(0.0, report.seconds - report.building - waiting), 1),
        "building": round(report.building, 1),
        "waiting": round(waiting, 1),
        "stages": {name: round(seconds, 1) for name, seconds in report.stages.items() if seconds >= 0.1},
        "slowest_probes": {probe["name"]: probe["seconds"] for probe in probes if probe.get("seconds", 0.0) >= 0.1},
        "reason": report.reason,
        "left_out": report.left_out,
        "notes": report.notes,
    }


def line(name: str, result: dict[str, Any], fits: bool | None) -> str:
    """Return a line for a person. `fits` is None if the verdict says nothing about the candidate."""
    word = {True: "ok", False: "MISSED", None: "?"}[fits]
    ratio = f"{result['speedup']:.2f}x" if isinstance(result["speedup"], float) else ""
    why = shortened(result["reason"], 90)
    return f"{word:6} {name:60} {result['verdict']:16} {ratio:7} {result['seconds']:6.1f} s  {why}".rstrip()
