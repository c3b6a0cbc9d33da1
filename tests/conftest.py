"""Options and marks that leave tests out, with a count of these at the end; what the run cost, by area; the number of processes
that it is spread over; seeds; and a kernel cache of the session's own."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sysconfig
import time
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import torch

from support import browser, shares, turns
from support.bench import on_cpu  # noqa: F401 - a fixture
from support.prepared import card  # noqa: F401 - a fixture
from support.ranks import Ranks

NO_GPU = "no CUDA device here"
NO_SANITIZER = "no compute-sanitizer on the PATH"
ONLY_ALL = "only by make test-all"
NO_BROWSER = "no Chromium on the PATH: make browser installs Debian's"
NO_COMPILER = "no C++ compiler with Python's headers: Debian's g++ and python3-dev"
LEFT_OUT = {
    "gpu": NO_GPU,
    "sanitizer": NO_SANITIZER,
    "browser": NO_BROWSER,
    "compiler": NO_COMPILER,
    "slow": ONLY_ALL,
}
COMPILES = shutil.which("g++") is not None and Path(sysconfig.get_path("include"), "Python.h").is_file()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mm32")
    group.addoption("--all", action="store_true", help="run the tests marked slow too")
    group.addoption("--record", action="store_true", help="of a run of --all: write tests/record.json")


# ---------------------------------------------------------------------------------------------------------------------
# Processes


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    return turns.workers()  # what -n auto means


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Return a scheduler that gives out whole files, in the order of `pytest_collection_modifyitems`, or single compilations;
    where there is a GPU, single tests, since nearly every one of them compiles kernels."""
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False
    spread = torch.cuda.is_available()

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return shares.together(nodeid, spread)

    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    spread = torch.cuda.is_available()
    items.sort(key=lambda item: shares.rank(item.nodeid, spread))
    if missing := [said for item in items if (said := fixtures_missing(item))]:
        raise pytest.UsageError("\n".join(sorted(set(missing))))


def fixtures_missing(item: pytest.Item) -> str | None:
    """Return which fixtures of a test do not exist; None if all do.

    A test that is left out is never set up, so without this only a machine with a GPU would say that a fixture is missing.
    """
    info = getattr(item, "_fixtureinfo", None)
    if info is None:
        return None
    missing = sorted(set(info.names_closure) - set(info.name2fixturedefs) - {"request"})
    return f"{item.nodeid.partition('[')[0]}: no fixture {', '.join(missing)}" if missing else None


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RUN], config.stash[BEGIN] = shares.Run(), time.monotonic()
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0"))
    if workers:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // workers))
    elif getattr(config.option, "tx", None):  # workers, and what tests start in them, share the cores
        threads = max(1, len(os.sched_getaffinity(0)) // len(config.option.tx))
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))


# ---------------------------------------------------------------------------------------------------------------------
# What is left out, and what the rest costs

RUN, BEGIN, EXCESS = pytest.StashKey[shares.Run](), pytest.StashKey[float](), pytest.StashKey[str]()


def why_left_out(item: pytest.Item) -> str | None:
    gpu = item.get_closest_marker("gpu") or item.get_closest_marker("sanitizer")
    if gpu and not torch.cuda.is_available():
        return NO_GPU
    if item.get_closest_marker("sanitizer") and shutil.which("compute-sanitizer") is None:
        return NO_SANITIZER
    if item.get_closest_marker("browser") and browser.find() is None:
        return NO_BROWSER
    if item.get_closest_marker("compiler") and not COMPILES:
        return NO_COMPILER
    if item.get_closest_marker("slow") and not item.config.option.all:
        return ONLY_ALL
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if (why := why_left_out(item)) is not None:
        pytest.skip(why)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest-timeout's: waiting for a turn is not the test's time
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    shared = torch.cuda.is_available() and "PYTEST_XDIST_WORKER" in os.environ and why_left_out(item) is None
    folder: Path = item.config._tmp_path_factory.getbasetemp().parent  # type: ignore[attr-defined]
    alone = item.get_closest_marker("gpu") is not None and shares.alone(item.nodeid)
    with turns.turn(folder, alone) if shared else contextlib.nullcontext():
        before = shares.used()
        done = yield
    if why_left_out(item) is None:
        slow = [item.nodeid] if item.get_closest_marker("slow") else []
        item.config.stash[RUN].add({item.nodeid: shares.used() - before}, slow, 0.0)
    return done


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object) -> None:
    """Add what a worker cost, at its end, to the run of the process that started it."""
    said = getattr(node, "workeroutput", {}).get("shares")
    if said is not None:
        node.config.stash[RUN].add(*said)  # type: ignore[attr-defined]


def pytest_sessionfinish(session: pytest.Session) -> None:
    config, run = session.config, session.config.stash[RUN]
    if hasattr(config, "workeroutput"):
        config.workeroutput["shares"] = (run.seconds, sorted(run.slow), shares.used())
        return
    workers = getattr(config.option, "tx", None)  # whose times have been added already
    run.add({}, [], sum(os.times()[:2]) if workers else shares.used())
    alone = shares.whole(config) and not config.option.all and not torch.cuda.is_available()
    excess = run.excess(shares.record()) if alone else None
    if excess is not None:
        config.stash[EXCESS] = excess
        if os.environ.get("MM32_HOLD_TIME"):  # by .ci/run; elsewhere it is only printed: the record is of other cores
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    say, run = terminalreporter.write_line, config.stash[RUN]
    workers, wall = len(getattr(config.option, "tx", None) or []), time.monotonic() - config.stash[BEGIN]
    if len(run.seconds) > 100:
        terminalreporter.section("seconds of processors")
        for line in run.table(shares.record()):
            say(line)
        say(f"{wall:.0f} s in all, by {workers or 'no'} workers")
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    left_out = {kind: sum(reason in text for text in skipped) for kind, reason in LEFT_OUT.items()}
    for kind, count in left_out.items():
        if count:
            say(f"{count} {kind} tests left out: {LEFT_OUT[kind]}", yellow=True)
    if EXCESS in config.stash:
        say(config.stash[EXCESS], red=True)
    if config.option.record and config.option.all:
        outcomes = {
            k: len(terminalreporter.stats.get(k, [])) for k in ("passed", "failed", "error", "xfailed", "xpassed")
        }
        if outcomes["failed"] or outcomes["error"]:
            say(f"{shares.RECORD.name} is left as it was: tests failed", red=True)
        elif not shares.whole(config):
            say(f"{shares.RECORD.name} is left as it was: only some of the tests were asked for", red=True)
        else:
            run.write(outcomes, left_out, wall, workers)
            say(f"wrote {shares.RECORD}")


# ---------------------------------------------------------------------------------------------------------------------
# Fixtures


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Return a number that depends on the test's name only; torch's generators are seeded with it."""
    value = zlib.crc32(request.node.nodeid.encode())
    torch.manual_seed(value)
    return value


@pytest.fixture
def rng(seed: int) -> random.Random:
    return random.Random(seed)


@pytest.fixture(scope="session")
def of_the_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of the run's own, which its processes share."""
    base: Path = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(of_the_run: Path) -> None:
    """Keep the kernels that tests compile in the run's folder, unless MM32_CACHE_DIR names another one."""
    os.environ.setdefault("MM32_CACHE_DIR", str(of_the_run / "kernels"))


@pytest.fixture(scope="session")
def libraries(of_the_run: Path) -> Path:
    """Return the folder that keeps kernels compiled for the host's simulator (simulated.py)."""
    folder = of_the_run / "simulated"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """Yield what runs functions on the ranks of process groups (ranks.py)."""
    server = Ranks()
    shares.SERVERS.append(lambda: server.pid)
    yield server
    shares.SERVERS.pop()
    server.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[browser.Browser]:
    program = browser.find()
    assert program is not None
    with browser.Browser(program) as opened:
        yield opened


@pytest.fixture
def panels_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave out the kernel tensorcore's tiles that split their own operands, because they add up K in another order."""
    from mm32 import plan as planning
    from support.gpu import forget_plans  # imported here: it loads mm32's planner, which some tests do without

    packing = tuple(tile for tile in planning.emulated.TENSOR_TILES if not tile.inline)
    monkeypatch.setattr(planning.emulated, "TENSOR_TILES", packing)
    forget_plans()
    yield
    forget_plans()


@pytest.fixture
def all_tiles(panels_only: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bring back all tiles for one test of a file whose other tests have `panels_only`."""
    from mm32 import plan as planning
    from support.gpu import ALL_TILES, forget_plans

    monkeypatch.setattr(planning.emulated, "TENSOR_TILES", ALL_TILES)
    forget_plans()
