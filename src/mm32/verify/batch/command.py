"""`mm32 verify` for many candidates: carries out the command line's options, and returns the exit code."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..entry import WrongArgument
from ..text import one_line
from ..verdict import Verdict
from . import kernelbench, pages
from .cards import chosen
from .jobs import Options, Pair, in_folder
from .records import write_whole
from .run import RESULTS, Batch
from .store import Store
from .table import EXIT_RULES, Row, exit_code, lines, summary
from .worker import Worker

if TYPE_CHECKING:
    from rich.console import Console

EVERY = 0.5  # seconds between two updates of the line on a terminal


def duration(seconds: float) -> str:
    """Return a duration as a person reads it: 45 s, 12 min, 3 h 20 min."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


class Progress:
    """How far a run is, its rate, and when it may end; the rate counts only what this run has done itself."""

    def __init__(self, total: int, before: int):
        self.doing: dict[str, str] = {}
        self.lock = threading.Lock()
        self.begun(total, before)

    def begun(self, total: int, before: int) -> None:
        self.total, self.done, self.here = total, before, 0
        self.begin = time.monotonic()

    def told(self, name: str, doing: str) -> None:
        with self.lock:
            self.doing[name] = doing

    def finished(self, name: str, new: bool) -> None:
        with self.lock:
            self.doing.pop(name, None)
            if new:
                self.done += 1
                self.here += 1

    @property
    def rate(self) -> float:
        """Candidates a minute."""
        return self.here / max(time.monotonic() - self.begin, 1e-9) * 60

    def line(self) -> str:
        said = f"{self.done} of {self.total}"
        if self.here:
            left = (self.total - self.done) / self.rate * 60
            said += f", {self.rate:.1f} a minute, {duration(left)} left"
        with self.lock:
            now = [f"{name}: {doing}" for name, doing in self.doing.items() if name]
        return one_line(" | ".join([said, *now[:3]]), 200)


@dataclass(frozen=True)
class Request:
    """What the command line asks for: a `reference` with a `folder` of candidates, or a `kernelbench` run with its `problems`.

    `results`, `eval_results` and `html`: files to write. `to_stdout`: whether the results go to standard output, and what is for
    a person to standard error.
    """

    options: Options
    reference: Path | None = None
    folder: Path | None = None
    kernelbench: Path | None = None
    problems: Path | None = None
    store: Path | None = None
    gpus: str | None = None
    builders: int | None = None
    submit: bool = False
    exit_rule: str = "worst"
    results: Path | None = None
    eval_results: Path | None = None
    html: Path | None = None
    quiet: bool = False
    to_stdout: bool = False

    def check(self) -> None:
        """Raise WrongArgument where the options do not go together."""
        if self.exit_rule not in EXIT_RULES:
            raise WrongArgument(f"--exit-code is one of {', '.join(EXIT_RULES)}, got {self.exit_rule}")
        if self.kernelbench is not None and (self.reference is not None or self.folder is not None):
            raise WrongArgument("--kernelbench has its references in the problems' folder: give no REFERENCE")
        if self.kernelbench is None and self.problems is not None:
            raise WrongArgument("--problems is for --kernelbench")
        if self.kernelbench is None and self.eval_results is not None:
            raise WrongArgument("--eval-results is for --kernelbench")

    def candidates(self) -> tuple[list[Pair], int, Path]:
        """Return the pairs, the number of tasks that fast_p is a share of, and the store's folder.

        The store is by default beside the candidates' folder, not in it.
        """
        if self.kernelbench is not None:
            pairs = kernelbench.pairs(self.kernelbench, self.problems)
            return pairs, kernelbench.tasks(pairs), self.store or _beside(self.kernelbench)
        assert self.reference is not None
        assert self.folder is not None
        pairs = in_folder(self.reference, self.folder)
        return pairs, len(pairs), self.store or _beside(self.folder)


def run(request: Request) -> int:
    """Verify a folder's candidates, or those of a KernelBench run. Returns the exit code. Raises WrongArgument."""
    request.check()
    if request.html is not None and (folder := pages.folder_of(request.html)).exists() and not folder.is_dir():
        raise WrongArgument(f"{folder}, where the pages of --html go, is no folder: remove it, or give another name")
    pairs, tasks, where = request.candidates()
    from .. import console

    page = console.Console(stderr=request.to_stdout)
    status = console.Console(stderr=True)
    progress = Progress(0, 0)
    batch = Batch(pairs, request.options, where, request.gpus, request.builders, progress.told, request.submit)
    progress.begun(batch.total, batch.before)
    if request.submit or not request.quiet:
        _say(status, _beginning(batch, where, request.submit))
    rows: dict[str, Row] = {}
    try:
        batch.start()
        with contextlib.nullcontext() if request.quiet else _shown(progress, status):
            for record in batch.records():
                row = rows[record["id"]] = Row.of(record)
                new = len(rows) > batch.before
                progress.finished(row.name, new)
                if new and not status.is_terminal and not request.quiet:
                    _say(status, f"{one_line(row.name, None)}: {row.verdict.value} ({progress.line().split(' | ')[0]})")
    except KeyboardInterrupt:
        _say(status, f"ending: {len(rows)} of {batch.total} are done and kept in {where}; the same command goes on")
        raise
    finally:
        batch.close()
    if request.submit and len(rows) < batch.total:
        return 0
    ordered = [rows[id_] for id_ in batch.jobs if id_ in rows]
    found = _found(batch, where)
    _write(request, batch, where, found)
    if request.html is not None:
        pages.write(request.html, batch.jobs, [found[id_] for id_ in batch.jobs if id_ in found])
    counted = kernelbench.first_samples(ordered) if request.kernelbench is not None else ordered
    for line in summary(ordered) if request.quiet else lines(ordered, whole=where / RESULTS):
        _say(page, line)
    if request.kernelbench is not None:
        _say(page, f"as KernelBench counts, sample 0 of {tasks} problems:")
        for line in summary(counted, tasks):
            _say(page, f"  {line}")
    if missing := batch.total - len(ordered):
        _say(status, f"{missing} of {batch.total} have no result: the same command goes on")
        return Verdict.TOOL_FAILED.exit_code
    return exit_code(ordered, request.exit_rule)


def _beside(folder: Path) -> Path:
    whole = folder.resolve()
    return whole.with_name(f"{whole.name}.mm32-verify")


def _beginning(batch: Batch, where: Path, submit: bool) -> str:
    said = f"{batch.total} candidates, kept in {where}"
    if batch.before:
        said += f"; {batch.before} of them were done before, with the same contents and options"
    if batch.reopened:
        said += f"; the records of {batch.reopened} cannot be read: these are verified again"
    if batch.others:
        said += f"; {batch.others} more there are of other contents or options, and are left alone"
    if submit:
        said += f"; workers: mm32 verify --worker {where}"
    return said


def _found(batch: Batch, where: Path) -> dict[str, dict[str, Any]]:
    """Return the batch's records by id, as the store has them."""
    found: dict[str, dict[str, Any]] = {}
    for record in Store(where).new_records():
        if record["id"] in batch.jobs:
            found.setdefault(record["id"], record)
    return found


def _write(request: Request, batch: Batch, where: Path, found: dict[str, dict[str, Any]]) -> None:
    """Write the results in our form, and those of a KernelBench run also in its form."""
    from .. import console

    batch.write_results(where / RESULTS, found.values())
    if request.to_stdout:
        console.write((where / RESULTS).read_text())
    elif request.results is not None:
        write_whole(request.results, (where / RESULTS).read_text())
    if request.kernelbench is not None:
        texts = kernelbench.results(list(found.values()))
        for level, text in texts.items():
            name = "eval_results.json" if len(texts) == 1 else f"eval_results_level_{level}.json"
            write_whole(where / name, text + "\n")
            if (asked := request.eval_results) is not None:
                write_whole(asked if len(texts) == 1 else asked.with_stem(f"{asked.stem}_level_{level}"), text + "\n")


def work(folder: Path, gpus: str | None, builders: int | None) -> int:
    """Run a worker for a store until all of its jobs are done. Returns the exit code. Raises WrongArgument."""
    from .. import console

    status = console.Console(stderr=True)
    store = Store(folder)

    def told(name: str, doing: str) -> None:
        if doing in ("building", "starting") or "failed" in doing or "given back" in doing or not name:
            _say(status, f"{name}: {doing}")

    worker = Worker(store, chosen(gpus), builders, "worker", told)
    _say(status, f"worker {worker.who['name']}, cards {', '.join(worker.who['cards'])}")
    thread = threading.Thread(target=_keep, args=(worker,), daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.2)
    finally:
        worker.stop()
        thread.join()
    if worker.problem:
        _say(status, worker.problem)
        return Verdict.TOOL_FAILED.exit_code
    return 0


def _keep(worker: Worker) -> None:
    with contextlib.suppress(RuntimeError):  # `problem` says why
        worker.run()


def _say(console: Console, text: str) -> None:
    for line in text.split("\n"):
        prefix = "mm32: " if console.stderr else ""
        console.print(prefix + one_line(line, None), markup=False, highlight=False, soft_wrap=True, emoji=False)


@contextlib.contextmanager
def _shown(progress: Progress, console: Console) -> Iterator[None]:
    """Show the progress meanwhile, as one line that changes, if the console is a terminal."""
    if not console.is_terminal:
        yield
        return
    import rich.markup

    ended = threading.Event()
    with console.status("starting") as line:

        def show() -> None:
            while not ended.wait(EVERY):
                line.update(rich.markup.escape(progress.line()))

        thread = threading.Thread(target=show, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
