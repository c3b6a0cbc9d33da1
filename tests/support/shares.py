"""What each area of the tests costs: seconds of processor time, counted here, recorded in record.json, and held to twice the
recorded time.

Processor time is user and system time of the test's process and of the children that it waited for. Other programs on its cores
make tests wait, but hardly add to their processor time. Other programs on the host can: once all areas were three times as slow.
As a program, `python tests/support/shares.py AREA COMMAND...` runs a command that is not a test (`make lint`, `make docs`) and
keeps its time for the table that the tests end with.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).parents[1] / "record.json"
STEPS = ROOT / ".pytest_cache" / "steps"  # a file for each command that is not a test: the seconds of its last run here
LIMIT = 2.0  # the most that a run may take, as a multiple of the recorded seconds
REMEDY = "make test-all"

# Beginning of a test's path below tests/ -> area; the first one that matches counts.
AREAS = {
    "verify/": "verify",
    "test_resources": "budgets",
    "test_sass": "budgets",
    "test_numerics": "numerics",
    "test_accuracy": "numerics",
    "test_dropin": "drop-in",
    "test_foreign": "operators",
    "test_nn": "layers",
    "test_packed": "layers",
    "test_export": "export",
    "test_bench": "bench",
    "test_families": "bench",
    "test_models": "models",
    "test_programs": "models",
    "test_gemm": "planner",
    "test_plan": "planner",
    "test_card": "planner",
    "test_cost": "planner",
    "test_forms": "planner",
    "test_fit": "planner",
    "test_cli": "command line",
    "test_collect_env": "command line",
    "test_settings": "command line",
    "test_records": "records",
    "test_links": "records",
    "test_site": "records",
    "test_project": "records",
    "test_package": "records",
    "test_types": "records",
    "test_error_messages": "records",
    "test_shares": "records",
    "test_compile.": "kernels",
    "test_prebuilt": "kernels",
    "test_launch": "kernels",
    "test_devices": "kernels",
    "test_distributed": "distributed",
    "test_sharding": "distributed",
    "test_sanitizer": "kernels",
    "": "operators",
}
STARTING = "starting"  # imports and collection, in each process
UNBOUNDED = "budgets"  # has no limit: its cost depends on which kernels have changed


def area(nodeid: str) -> str:
    """Return the area of a test, by its file."""
    path = nodeid.partition("::")[0].removeprefix("tests/")
    return next(name for start, name in AREAS.items() if path.startswith(start))


# Tests that compare times: they run one after another, in one process.
TIMED = "verify/test_tool", "verify/test_command", "verify/test_corpus"

# GPU tests that measure times, or that need all of the card's memory or all cards: none runs beside another test.
ALONE = (
    *("test_bench", "test_host_time", "test_families", "test_models", "test_programs", "test_export_notebook"),
    *("test_blocks_gpu", "test_distributed_gpu", "test_cli_demo", "verify/"),
    *("test_launch.py::test_strides_past_2_to_31", "test_launch.py::test_more_than_2_to_31_results"),
)


def alone(nodeid: str) -> bool:
    """Return whether a GPU test runs while no other test does."""
    return nodeid.removeprefix("tests/").startswith(ALONE)


def together(nodeid: str, spread: bool = False) -> str:
    """Return a name that is the same for all tests that one process has to run: those of a file, because they share imports and
    fixtures. Each compilation is alone; with `spread`, each test but those of verify."""
    path, _, test = nodeid.partition("::")
    if path.removeprefix("tests/").startswith(TIMED):
        return "timed"
    single = area(nodeid) == "budgets" or test.startswith("test_compiles_and_launches")
    return nodeid if single or (spread and area(nodeid) != "verify") else path


def rank(nodeid: str, spread: bool = False) -> int:
    """Return a test's place in the order: 0 for the timed tests, which one process runs, 1 for other files, 2 for tests that run
    one by one, which fill the gaps at the end."""
    where = together(nodeid, spread)
    return 0 if where == "timed" else 2 if where == nodeid else 1


def used() -> float:
    """Return the processor time, in seconds, of this process, of its ended children, and of servers that fork for tests."""
    return sum(os.times()[:4]) + _servers()


def _verifier() -> int | None:
    """Return the id of the process that workers of `mm32 verify` are forked from, or None if there is none."""
    shared = getattr(sys.modules.get("mm32.verify.processes.launch"), "_shared", None)
    if shared is None or shared[0][0] != os.getpid() or shared[1].process.poll() is not None:
        return None
    return shared[1].process.pid


SERVERS: list[Callable[[], int | None]] = [_verifier]  # each returns the id of a server process while that is alive


def _servers() -> float:
    """Return the processor time of the servers and of their ended children."""
    pids = [pid for server in SERVERS if (pid := server()) is not None]
    if not pids:
        return 0.0
    import psutil

    return sum(sum(psutil.Process(pid).cpu_times()[:4]) for pid in pids)


def steps() -> dict[str, float]:
    return {path.name: float(path.read_text()) for path in sorted(STEPS.glob("*"))}


# ---------------------------------------------------------------------------------------------------------------------
# The sources that a record was made with


def sources() -> dict[str, str]:
    """Return a digest of each folder of sources and tests, by its path from the root."""
    digests: dict[str, Any] = {}
    for top in ("src", "tests", "examples", "benchmarks"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in (".py", ".cu", ".cuh"):
                folder = path.parent.relative_to(ROOT).as_posix()
                digests.setdefault(folder, hashlib.sha256()).update(path.name.encode() + b"\0" + path.read_bytes())
    return {folder: digest.hexdigest()[:12] for folder, digest in digests.items()}


def changed(made: dict[str, Any]) -> list[str]:
    """Return the folders whose files differ from those of the record."""
    now = sources()
    return sorted(
        folder for folder in now.keys() | made["sources"].keys() if now.get(folder) != made["sources"].get(folder)
    )


def record() -> dict[str, Any] | None:
    return json.loads(RECORD.read_text()) if RECORD.exists() else None


# ---------------------------------------------------------------------------------------------------------------------
# A run


def whole(config: pytest.Config) -> bool:
    """Return whether pytest was asked for all tests: not for certain files, names or marks."""
    fewer = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise")
    asked = any(getattr(config.option, name, None) for name in fewer)
    return config.args_source is config.ArgsSource.TESTPATHS and not asked


class Run:
    """The time of one run of pytest, test by test, from all of its processes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}  # by test
        self.slow: set[str] = set()  # tests that run only when all tests do
        self.total = 0.0

    def add(self, seconds: dict[str, float], slow: Iterable[str], total: float) -> None:
        """Add the times that one process reports at its end."""
        self.seconds |= seconds
        self.slow |= set(slow)
        self.total += total

    def areas(self, slow: bool = False) -> dict[str, float]:
        """Return the seconds of each area: of the tests of every run, or with `slow`, of those that only a full run has."""
        summed: Counter[str] = Counter()
        for nodeid, seconds in self.seconds.items():
            if (nodeid in self.slow) == slow:
                summed[area(nodeid)] += seconds
        if not slow:
            summed[STARTING] = max(0.0, self.total - sum(self.seconds.values()))
        return {name: round(seconds, 1) for name, seconds in summed.items()}

    def tests(self) -> Counter[str]:
        return Counter(area(nodeid) for nodeid in self.seconds)

    def table(self, made: dict[str, Any] | None) -> list[str]:
        """Return a line for each area, the most expensive first, including commands that are not tests, as they last ran here."""
        quick, slow, count = {**steps(), **self.areas()}, self.areas(slow=True), self.tests()
        before = (made or {}).get("areas", {})
        whole = sum(quick.values()) + sum(slow.values()) or 1.0
        lines = [f"{'area':14}{'tests':>7}{'seconds':>9}{'share':>7}{'recorded':>10}"]
        for name in sorted(quick.keys() | slow.keys(), key=lambda name: -quick.get(name, 0) - slow.get(name, 0)):
            took = quick.get(name, 0.0) + slow.get(name, 0.0)
            kept = before.get(name, {"quick": 0.0, "slow": 0.0})
            recorded = kept["quick"] + (kept["slow"] if slow else 0.0)
            lines.append(
                f"{name:14}{count[name] or '':>7}{took:9.1f}{took / whole:7.0%}"
                + (f"{recorded:10.1f}" if name in before else f"{'-':>10}")
            )
        return lines

    def excess(self, made: dict[str, Any] | None) -> str | None:
        """Return why a whole quick run took too long, or None if it did not. If others use the machine too and it is slower than
        at the time of the record, every area is slower: the median of the areas tells by how much."""
        if made is None:
            return None
        took = {name: seconds for name, seconds in self.areas().items() if name != UNBOUNDED}
        of_record = {
            name: of["quick"]
            for name, of in made["areas"].items()
            if (of["tests"] or name == STARTING) and name != UNBOUNDED
        }
        ratios = [took[name] / seconds for name, seconds in of_record.items() if name in took and seconds > 0]
        slower = max(1.0, statistics.median(ratios)) if ratios else 1.0
        now, expected = sum(took.values()), slower * sum(of_record.values())
        if now <= LIMIT * expected:
            return None
        return (
            f"the tests took {now:.0f} s of processors, more than {LIMIT:g} times the {expected:.0f} s on record"
            + (f" for a machine that is {slower:.1f} times slower than it was" if slower > 1 else "")
            + f"; mark what is slow (@pytest.mark.slow), or record it: {REMEDY}"
        )

    def write(self, outcomes: dict[str, int], left_out: dict[str, int], wall: float, workers: int) -> None:
        """Write record.json from a run of all tests."""
        import torch

        quick, slow, count = {**steps(), **self.areas()}, self.areas(slow=True), self.tests()
        areas = {
            name: {"tests": count[name], "quick": quick.get(name, 0.0), "slow": slow.get(name, 0.0)}
            for name in sorted(quick.keys() | slow.keys())
        }
        whole = sum(quick.values())
        for name, of in areas.items():
            of["share"] = round(quick.get(name, 0.0) / whole, 3)
        made = {
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cores": os.cpu_count(),
            "workers": workers,
            "outcomes": outcomes,
            "left out": left_out,
            "wall": round(wall),
            "seconds": {"quick": round(whole), "slow": round(sum(slow.values()))},
            "areas": areas,
            "sources": sources(),
        }
        RECORD.write_text(json.dumps(made, indent=1) + "\n")


def main(name: str, *command: str) -> int:
    before = used()
    done = subprocess.run(command, check=False)
    STEPS.mkdir(parents=True, exist_ok=True)
    (STEPS / name).write_text(f"{used() - before:.1f}\n")
    return done.returncode


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python tests/support/shares.py AREA COMMAND...")
    sys.exit(main(*sys.argv[1:]))
