"""A whole run on this machine: it puts jobs into a store, starts a worker, and gives the records as they come."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..entry import check_baseline
from ..report import Report
from .cards import CPU, chosen
from .jobs import Options, Pair, make, of_pairs
from .records import header, report_of, write_whole
from .store import LEASE, Store
from .worker import RUNNERS, Worker

POLL = 0.1
RESULTS = "results.jsonl"


class Batch:
    """Candidates that are verified side by side. `records` yields their records as they are done, in no certain order.

    A candidate that the store already has a record of, with the same contents and options, is not verified again: these are
    `before` of `total`. With `submit`, nothing is run here: other workers do that, and `records` does not wait for them. Without
    a `store`, a temporary folder is used. `runners`: how many candidates are on a card at once.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        options: Options,
        store: Path | None = None,
        gpus: int | str | None = None,
        builders: int | None = None,
        told: Callable[[str, str], None] = lambda name, doing: None,
        submit: bool = False,
        lease_s: float = LEASE,
        runners: int = RUNNERS,
    ):
        cards = chosen(gpus)
        if not submit:
            check_baseline(options.baselines, cards[0].name != CPU)
        jobs = make(pairs, options)  # before anything is written: an unreadable script is an error now
        self.temporary = store is None
        self.folder = Path(tempfile.mkdtemp(prefix="mm32-verify-store-")) if store is None else store
        self.store = Store(self.folder, create=True, lease_s=lease_s)
        self.others = len(self.store.jobs().keys() - {job.id for job in jobs})
        self.jobs = {job.id: job for job in self.store.add(jobs)}
        self.total = len(self.jobs)
        self.reopened = len(self.store.reopen(self.jobs.keys()))
        self.before = len(self.jobs.keys() & self.store.done())
        self.worker = (
            None if submit else Worker(self.store, cards, builders, "run", told, only=self.jobs.keys(), runners=runners)
        )
        self.thread: threading.Thread | None = None
        self.error: BaseException | None = None
        self.begin = time.monotonic()

    def __len__(self) -> int:
        return self.total

    def start(self) -> None:
        """Begin in the background; `close` ends it."""
        if self.worker is not None and self.thread is None:
            self.begin = time.monotonic()
            self.thread = threading.Thread(target=self._work, daemon=True)
            self.thread.start()

    def _work(self) -> None:
        assert self.worker is not None
        try:
            self.worker.run()
        except BaseException as error:
            self.error = error

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield one record for each job. Raises RuntimeError where the worker had to give up."""
        seen: set[str] = set()
        while len(seen) < self.total:
            alive = self.thread is not None and self.thread.is_alive()
            found = False
            for record in self.store.new_records():
                if record["id"] in self.jobs and record["id"] not in seen:
                    seen.add(record["id"])
                    found = True
                    yield record
            if not alive and not found:
                if self.error is not None:
                    raise RuntimeError(str(self.error)) from self.error
                return
            if not found:
                time.sleep(POLL)

    def close(self) -> None:
        """End everything that runs. Finished jobs are kept; the others are given back."""
        if self.worker is not None:
            self.worker.stop()
        if self.thread is not None:
            self.thread.join()
            self.thread = None
        if self.temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def write_results(self, path: Path, records: Iterable[dict[str, Any]]) -> None:
        """Write all records of this batch to one file, behind a header, in the order of the jobs."""
        found = {record["id"]: record for record in records}
        lines = [header(total=self.total, done=len(found))]
        lines += [found[id_] for id_ in self.jobs if id_ in found]
        write_whole(path, "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines))


class Reports:
    """An iterator over the reports of `verify_many`, as they are done; `len` is how many there will be.

    Candidates are verified in the background until it is closed or exhausted: use it as a context manager, exhaust it, or call
    `close`.
    """

    def __init__(self, batch: Batch):
        self.batch = batch
        batch.start()
        self._records = batch.records()

    def __len__(self) -> int:
        return self.batch.total

    def __iter__(self) -> Reports:
        return self

    def __next__(self) -> Report:
        try:
            return report_of(next(self._records))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Reports:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.batch.close()

    def stop(self) -> None:
        """Start nothing more (from any thread): what is being verified is given back, and the iterator ends with what is done."""
        if self.batch.worker is not None:
            self.batch.worker.stop()

    def __del__(self) -> None:
        if getattr(self, "batch", None) is not None:
            self.stop()


def verify_many(
    pairs: Iterable[Pair | Sequence[str | Path]],
    *,
    trials: int | None = None,
    seed: int | None = None,
    timeout: float = 300.0,
    memory_gib: float | None = None,
    baselines: Sequence[str] = ("eager",),
    gpus: int | str | None = None,
    builders: int | None = None,
    store: str | Path | None = None,
    progress: Callable[[str, str], None] | None = None,
) -> Reports:
    """Compare many candidates with their references, on all cards of this machine.

    Args:
        pairs: (reference, candidate), paths of scripts as for `verify`. `report.candidate` tells which candidate a report is of.
            A store recognises a candidate by its path; a `Pair` of mm32.verify.batch.jobs gives it another name.
        trials: as for `verify`.
        seed: as for `verify`; by default one for all candidates of a reference.
        timeout: as for `verify`; but here a call may take max(5 s, 100 times the reference's time), and a first call, which may
            compile, two minutes.
        memory_gib: as for `verify`.
        baselines: as for `verify`.
        gpus: how many cards to use, or "all", the default; without any, the CPU.
        builders: how many candidates are built at once; by default as many as the cores and cards allow.
        store: a folder in which every result is kept as it is done; a call that gives it again goes on from there. By default a
            temporary one.
        progress: called from several threads with a candidate's name and what is being done with it.

    Returns an iterator of reports as they are done, in no certain order: one for each pair (equal pairs have one). The verdict is
    TOOL FAILED where this tool failed twice. Raises ValueError for wrong arguments, FileNotFoundError for a script that does not
    exist. The iterator raises RuntimeError where no card could be worked on.

    Example:
        >>> pairs = [("reference.py", path) for path in sorted(Path("candidates").glob("*.py"))]
        >>> for report in mm32.verify.verify_many(pairs):
        ...     print(report.candidate, report.verdict.name)
    """
    options = Options(trials, seed, timeout, memory_gib, tuple(baselines))
    told = progress or (lambda name, doing: None)
    folder = None if store is None else Path(store)
    return Reports(Batch(of_pairs(pairs), options, folder, gpus, builders, told))
