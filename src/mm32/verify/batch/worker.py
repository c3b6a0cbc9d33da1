"""A worker: takes jobs from a store, builds them ahead side by side, has each verified on a card, and keeps the results.

It holds no state that is not in the store. Its own process uses no card and runs nothing of a candidate. Only its runners may
break, and they are started again. A card has two runners: they compare at the same time, but while one of them times, it has the
card to itself (device_lock.py). The CPU has one.

    builders (threads)  take a job - build it, without a card - put it into the queue
    cards (threads)     take it from the queue - have their runner verify it - keep the record
    heartbeat (thread)  gives the store a sign for each job that is held
"""

from __future__ import annotations

import os
import queue
import secrets
import shutil
import socket
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import mm32

from ..entry import WrongArgument, check_baseline
from ..processes.launch import NoStart
from .ahead import Built, Stopped, build
from .cards import CPU, Card, arches, chosen
from .handle import SILENCE, Broken, Runner
from .jobs import Job, digest
from .judged import limits
from .store import Lease, Store, me

IDLE = 1.0  # seconds between two looks for a job that another worker may have left
ON_A_CARD = 4  # the most builders for each card, where there are enough cores
RUNNERS = 2  # runners of a card, unless a worker is told otherwise


class Turns:
    """The turns of a card's runners: all verify at once, or one alone. That one waits until the others are done, and goes before
    those that come later."""

    def __init__(self) -> None:
        self.at_work = self.waiting = 0
        self.alone = False
        self.changed = threading.Condition()

    @contextmanager
    def turn(self, alone: bool = False) -> Iterator[None]:
        with self.changed:
            self.waiting += alone
            free = (lambda: self.at_work == 0) if alone else (lambda: not self.alone and not self.waiting)
            self.changed.wait_for(free)
            self.waiting -= alone
            self.at_work += 1
            self.alone = alone
        try:
            yield
        finally:
            with self.changed:
                self.at_work -= 1
                self.alone = False
                self.changed.notify_all()


COMPUTING = 3  # processes of a runner that compute: its own, which judges, the reference's and the candidate's
BROKEN = 3  # runners in a row that failed to start on a card, after which the card is not used any more

Told = Callable[[str, str], None]  # a candidate's name, and what is being done with it


def builders_for(cards: Sequence[Card], runners: int = RUNNERS) -> int:
    """Return how many candidates are built at once: one where the CPU is timed, else by the cores that the runners leave."""
    if any(card.name == CPU for card in cards):
        return 1
    return max(1, min(len(os.sched_getaffinity(0)) - 2 * runners * len(cards), ON_A_CARD * len(cards)))


def threads_for(cards: Sequence[Card], runners: int = RUNNERS) -> int | None:
    """Return how many threads OpenMP, and so torch, has in each process of a batch: a share of the cores. Otherwise, each process
    of every runner would use all cores, and they would wait for one another. None leaves the number as it is: the user has set
    it, or the CPU is timed, on which one process at a time works."""
    if os.environ.get("OMP_NUM_THREADS") or any(card.name == CPU for card in cards):
        return None
    return max(1, len(os.sched_getaffinity(0)) // (runners * len(cards) * COMPUTING))


class Worker:
    """A worker. `run` works until all jobs of the store are done, or `stop` is called from another thread.

    `kind`: run or worker. `only`: the ids of the jobs that it may do; by default all of the store's. `runners`: how many
    candidates are on a card at once, of which one is timed. Raises WrongArgument where jobs need a card and there is none.
    """

    def __init__(
        self,
        store: Store,
        cards: Sequence[Card],
        builders: int | None = None,
        kind: str = "worker",
        told: Told = lambda name, doing: None,
        silence: float = SILENCE,
        only: Collection[str] | None = None,
        runners: int = RUNNERS,
    ):
        self.store = store
        self.cards = list(cards)
        self.only = only
        if not store.jobs() and store.foreign:
            others = ", ".join(f"{count} by mm32 {version}" for version, count in store.foreign.items())
            raise WrongArgument(
                f"the jobs of {store.folder} were submitted {others}; this is {mm32.__version__}: use the same version"
            )
        done = store.done()
        for job in self._jobs().values():
            if job.id not in done:  # for one that is done, another worker may have had the card that this one lacks
                check_baseline(job.options["baselines"], any(card.name != CPU for card in self.cards))
        if builders is not None and not (isinstance(builders, int) and builders >= 1):
            raise WrongArgument(f"builders must be an integer, 1 at least, or None, got {builders!r}")
        if not (isinstance(runners, int) and runners >= 1):
            raise WrongArgument(f"runners must be an integer, 1 at least, got {runners!r}")
        self.builders = builders or builders_for(cards, runners)
        self.threads = threads_for(cards, runners)
        self.arch = arches(self.cards)
        self.told = told
        self.silence = silence
        host = socket.gethostname()
        name = f"{host}-{os.getpid()}-{secrets.token_hex(2)}"
        # The CPUs of different machines count as different cards.
        self.names = {card: f"{host}:{CPU}" if card.name == CPU else card.name for card in self.cards}
        self.who = {**me(kind), "name": name, "cards": sorted(self.names.values())}
        self.stopping = threading.Event()
        self.held: list[Lease] = []
        self.lock = threading.Lock()
        self.runners = [card for card in self.cards for _ in range(1 if card.name == CPU else runners)]
        # The jobs held at once: one for each builder, and one for each runner (two of a CPU), built or being verified.
        self.room = threading.Semaphore(self.builders + max(len(self.runners), 2 * len(self.cards)))
        self.ready: queue.Queue[tuple[Lease, Built]] = queue.Queue()
        self.needed = threading.Event()  # set when there is something to do
        self.problem = ""  # why the worker had to give up, if it had
        self.faults = 0  # jobs in a row that could not begin here
        self.given_back: dict[str, str] = {}  # the ids of those, and why
        self.working = set(self.cards)  # cards that are still used
        self.turns = {card: Turns() for card in self.cards}

    def stop(self) -> None:
        self.stopping.set()

    def _jobs(self) -> dict[str, Job]:
        """Return the store's jobs that this worker may do."""
        return {id_: job for id_, job in self.store.jobs().items() if self.only is None or id_ in self.only}

    def run(self) -> None:
        """Work until nothing is left to do. Raises RuntimeError where no card could be worked on, or a thread failed."""
        self.lines = self.store.lines(self.who)
        self.work = Path(tempfile.mkdtemp(prefix="mm32-batch-"))
        self.store.beat([], self.who)
        threads = [threading.Thread(target=self._guarded, args=(self._beat,))]
        threads += [threading.Thread(target=self._guarded, args=(self._build,)) for _ in range(self.builders)]
        threads += [threading.Thread(target=self._guarded, args=(self._card, card)) for card in self.runners]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                threads[-1].join(0.2)
                time.sleep(0.01)
        finally:
            self.stop()
            for thread in threads:
                thread.join()
            while not self.ready.empty():
                self._discard(self.ready.get()[1])
            self.store.leave(self.held, self.who)
            self.lines.close()
            shutil.rmtree(self.work, ignore_errors=True)
        if self.problem:
            raise RuntimeError(self.problem)

    def _guarded(self, target: Callable[..., None], *arguments: Any) -> None:
        try:
            target(*arguments)
        except BaseException:
            self.problem = self.problem or f"a thread of the worker failed:\n{traceback.format_exc()}"
            self.stop()

    def _beat(self) -> None:
        every = min(10.0, self.store.lease_s / 6)
        while not self.stopping.wait(every):
            with self.lock:
                held = list(self.held)
            self.store.beat(held, self.who)

    # ------------------------------------------------------------------------------------------------------ building

    def _build(self) -> None:
        on_cpu = any(card.name == CPU for card in self.cards)
        while not self.stopping.is_set():
            if not self.room.acquire(timeout=0.2):
                continue
            lease = self.store.take(self.who, self.only, self.given_back.keys())
            if lease is None:
                self.room.release()
                left = set(self._jobs()) - self.store.done()
                if left and left <= self.given_back.keys():
                    self.problem = (
                        self.problem or f"this machine cannot do the rest: {next(iter(self.given_back.values()))}"
                    )
                if left <= self.given_back.keys():
                    self.stop()
                    return
                self.stopping.wait(min(IDLE, self.store.lease_s / 4))
                continue
            with self.lock:
                self.held.append(lease)
            try:
                wrong = self._changed(lease)
            except OSError as error:
                self._give_back(lease, f"{error.filename} cannot be read: {error.strerror}")
                continue
            if wrong:
                self._failed(lease, wrong, "")
                continue
            self.needed.set()
            self.told(lease.job.name, "building")
            lease.begin()
            try:
                built = build(
                    lease.job, limits(lease.job), on_cpu, self.arch, self.work, self.stopping.is_set, self.threads
                )
            except Stopped:
                return
            except (NoStart, OSError) as error:
                self._give_back(lease, f"no process for the building: {error}")
                continue
            self.faults = 0
            lease.pause()
            self.ready.put((lease, built))

    def _changed(self, lease: Lease) -> str:
        """Return why the scripts are not what the job was made from; "" if they are. Raises OSError if neither the reference nor
        the candidate's folder is there, or can be read: that is not the candidate's fault."""
        job = lease.job
        if digest(Path(job.reference)) != job.reference_sha256:
            return f"{job.reference} has other contents than when the job was made"
        os.listdir(Path(job.candidate).parent)
        try:
            if digest(Path(job.candidate)) != job.candidate_sha256:
                return f"{job.candidate} has other contents than when the job was made"
        except OSError as error:
            return f"{job.candidate} cannot be read on {self.who['host']}: {error.strerror}"
        return ""

    def _give_back(self, lease: Lease, reason: str) -> None:
        """Give back a job that could not begin here for a reason that is this machine's, and leave it to others. After BROKEN of
        them in a row the worker gives up."""
        self.told(lease.job.name, f"given back: {reason}")
        self.given_back[lease.job.id] = reason
        self.store.give_back(lease)
        self._drop(lease)
        with self.lock:
            self.faults += 1
            if self.faults >= BROKEN:
                self.problem = self.problem or f"this machine cannot do the work: {reason}"
                self.stop()

    # ------------------------------------------------------------------------------------------------------ cards

    def _card(self, card: Card) -> None:
        """Verify on one card the candidates that are ready, until there is nothing left to do."""
        runner: Runner | None = None
        broken = 0
        try:
            while not self.needed.wait(0.1):
                if self.stopping.is_set():
                    return
            with suppress(Broken):  # it imports torch while the first candidates are built; a failure shows below
                runner = self._runner(card)
            while not self.stopping.is_set() and card in self.working:
                if (taken := self._next_for(card)) is None:
                    continue
                lease, built = taken
                said: dict[str, Any] = {}
                begun = False
                try:
                    self.told(lease.job.name, "starting")
                    runner = runner or self._runner(card)
                    lease.begin()
                    begun = True
                    said = self._verify(runner, card, lease, built)
                    reason = str(said.get("error", ""))
                except Broken as error:
                    reason = str(error)
                if self.stopping.is_set() and "report" not in said:
                    self._discard(built)
                    return
                if not begun:  # no runner started, which is not the candidate's fault: another card may take it
                    self.ready.put((lease, built))
                    broken += 1
                    if broken == BROKEN:
                        self._leave_alone(card, reason)
                        return
                    continue
                if "report" not in said:
                    assert runner is not None
                    runner.close()
                    runner = None
                self._discard(built)
                if self._is_settled(lease, said, reason, card):
                    broken = 0
        finally:
            if runner is not None:
                runner.close()

    def _runner(self, card: Card) -> Runner:
        """Start a process that verifies on a card. Raises Broken."""
        return Runner(card, self.arch, self.stopping.is_set, self.silence, self.threads)

    def _next_for(self, card: Card) -> tuple[Lease, Built] | None:
        """Return a candidate that is built, for this card; None if there is none yet."""
        try:
            lease, built = self.ready.get(timeout=0.2)
        except queue.Empty:
            return None
        if self._avoids(card, lease):
            self.ready.put((lease, built))
            self.stopping.wait(0.2)
            return None
        return lease, built

    def _verify(self, runner: Runner, card: Card, lease: Lease, built: Built) -> dict[str, Any]:
        """Have the runner verify a candidate, and return its answer. Raises Broken."""
        order = {"job": lease.job.record(), "built": built.record()}
        said: dict[str, Any] = {}
        # A second time alone if memory was missing, which the other runner's candidate may have had.
        for alone in (False, True):
            with self.turns[card].turn(alone):
                said = runner.verify(order, lambda text: self.told(lease.job.name, text))
            if not said.get("short"):
                break
        return said

    def _is_settled(self, lease: Lease, said: dict[str, Any], reason: str, card: Card) -> bool:
        """Keep a candidate's report, and return True; or note that it failed here, after which it may be tried again."""
        report = said.get("report")
        if report is not None and not (said["suspicious"] and lease.attempt == 1):
            self._finish(lease, report, self.names[card])
            return True
        self._failed(lease, reason if report is None else f"{report['verdict']}: {report['reason']}", self.names[card])
        return False

    def _avoids(self, card: Card, lease: Lease) -> bool:
        """Return whether another card of this worker is to try what has failed on this one."""
        failed = {failure.get("card", "") for failure in lease.failures}
        return self.names[card] in failed and any(
            name not in failed for other, name in self.names.items() if other != card and other in self.working
        )

    def _leave_alone(self, card: Card, reason: str) -> None:
        with self.lock:
            self.working.discard(card)
            left = bool(self.working)
        self.told("", f"card {self.names[card]} is left alone: {reason}")
        if not left:
            self.problem = f"no card could be worked on; the last one: {reason}"
            self.stop()

    def _finish(self, lease: Lease, report: dict[str, Any], card: str) -> None:
        self.store.finish(self.lines, lease, self.who, report, card)
        self._drop(lease)

    def _failed(self, lease: Lease, reason: str, card: str) -> None:
        """Note that the tool, not the candidate, has failed: another worker tries it again, or the record says TOOL FAILED."""
        self.told(lease.job.name, f"the tool failed: {reason}")
        self.store.fail(self.lines, lease, self.who, reason, card)
        self._drop(lease)

    def _drop(self, lease: Lease) -> None:
        with self.lock:
            self.held.remove(lease)
        self.room.release()

    def _discard(self, built: Built) -> None:
        shutil.rmtree(built.folder, ignore_errors=True)
        if built.caches:
            with suppress(OSError):
                os.unlink(built.caches)


def work(folder: str | Path, gpus: int | str | None = None, builders: int | None = None) -> str:
    """Run a worker on this machine until all jobs of a store are done. Returns its name. For a scheduler of your own.

    `gpus`: cards to use, a number or "all", of those that CUDA_VISIBLE_DEVICES leaves visible; the CPU where there is none.
    Raises ValueError where the folder is no store, or its jobs need a card and there is none; RuntimeError where no card could be
    worked on.
    """
    worker = Worker(Store(Path(folder)), chosen(gpus), builders)
    worker.run()
    return str(worker.who["name"])
