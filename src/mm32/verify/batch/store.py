"""The shared folder of a batch: jobs, who has taken which, and their results.

Workers hold nothing that is not also here, and come and go without telling anybody. If several machines share the file system,
each can run workers. The file system must make two operations atomic: creating a file that must not exist yet, and renaming one
(NFS from version 3 on, Lustre, GPFS, any local one).

    jobs/*.jsonl       jobs, a file for each time that some were added
    leases/ID.N        attempt N at a job: who has it; the file's time is when its worker last gave a sign
    leases/ID.N.begun  exists while a part of the candidate runs, which may then have caused a worker's death
    leases/ID.N.failed why the attempt failed: the worker died, the card hung
    records/*.jsonl    records, a file for each worker
    done/ID            there is a record
    workers/*.json     the workers that are there, and their cards

The leases of a worker that dies run out. Any other worker then tries the job again, once. If that attempt fails as well, the
record says TOOL FAILED and names both.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import psutil

import mm32

from ..entry import WrongArgument
from ..report import Report
from ..text import one_line
from ..verdict import Verdict
from .jobs import Job
from .records import SCHEMA, Lines, Reader, header, write_whole

# Seconds without a sign after which a worker is taken for dead. A file system may show a sign late.
LEASE = 120.0
ATTEMPTS = 2
FOLDERS = ("jobs", "leases", "records", "done", "workers")


def me(kind: str) -> dict[str, Any]:
    """Describe this process, so that another one on this machine can tell whether it still exists. `kind`: run or worker."""
    boot = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    started = psutil.Process().create_time()
    return {"host": socket.gethostname(), "boot": boot, "pid": os.getpid(), "started": started, "kind": kind}


def gone(who: dict[str, Any]) -> bool:
    """Return whether a process of this machine, as `me` described it, has ended; False for one of another machine."""
    here = me("")
    if who.get("host") != here["host"]:
        return False
    if who.get("boot") != here["boot"]:
        return True
    try:
        return abs(psutil.Process(int(who["pid"])).create_time() - float(who["started"])) > 1
    except (psutil.Error, KeyError, ValueError):
        return True


@dataclass
class Lease:
    """A job that a worker of this process has taken. `failures`: why earlier attempts failed."""

    job: Job
    attempt: int
    path: Path
    failures: list[dict[str, Any]] = field(default_factory=list)

    def begin(self) -> None:
        """Mark that a part of the candidate runs from now on: the worker's death would count as an attempt."""
        self.path.with_name(f"{self.path.name}.begun").touch()

    def pause(self) -> None:
        with contextlib.suppress(OSError):
            self.path.with_name(f"{self.path.name}.begun").unlink()


class Store:
    """One process's view of the folder. Raises WrongArgument where the folder is no store."""

    def __init__(self, folder: Path, create: bool = False, lease_s: float = LEASE):
        self.folder = folder.resolve()
        self.lock = threading.RLock()
        settings = self.folder / "store.json"
        if create and not settings.exists():
            if self.folder.is_dir() and any(self.folder.iterdir()):
                raise WrongArgument(f"{self.folder} is no store of `mm32 verify`, and not empty: give another folder")
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for name in FOLDERS:
                (self.folder / name).mkdir(exist_ok=True)
            write_whole(settings, json.dumps(header(lease_s=lease_s), indent=1) + "\n")
        try:
            found = json.loads(settings.read_text())
        except (OSError, ValueError):
            raise WrongArgument(f"{self.folder} is no store of `mm32 verify`: it has no store.json") from None
        if found.get("schema") != SCHEMA:
            raise WrongArgument(f"{self.folder} is a store of {found.get('schema')}, this mm32 writes {SCHEMA}")
        self.lease_s = float(found["lease_s"])
        self._jobs: dict[str, Job] = {}
        self.foreign: dict[str, int] = {}  # the number of jobs of each other version of mm32, which are left alone
        self._job_files: dict[Path, Reader] = {}
        self._record_files: dict[Path, Reader] = {}
        self._next = 0

    # ------------------------------------------------------------------------------------------------------ jobs

    def add(self, jobs: Sequence[Job]) -> list[Job]:
        """Add the jobs that are not there yet. Returns all of them as they are there, with the seed that they were added with.

        If the scripts, with the same contents, lie elsewhere now (the store was moved), this process reads them from there.
        """
        there = self.jobs()
        new = [job for job in jobs if job.id not in there]
        if new:
            lines = [header(), *(job.record() for job in new)]
            name = f"{time.time():017.6f}-{secrets.token_hex(4)}.jsonl"
            write_whole(self.folder / "jobs" / name, "".join(json.dumps(line) + "\n" for line in lines))
        there = self.jobs()
        for job in jobs:
            there[job.id] = replace(there[job.id], reference=job.reference, candidate=job.candidate)
        return [there[job.id] for job in jobs]

    def jobs(self) -> dict[str, Job]:
        """Return the jobs that were added by this version of mm32: a record has to be of the version that its job names."""
        names = {one.name for one in fields(Job)}
        for path in sorted((self.folder / "jobs").glob("[0-9]*.jsonl")):
            reader = self._job_files.setdefault(path, Reader(path))
            for found in reader.new():
                if reader.version not in ("", mm32.__version__):
                    self.foreign[reader.version] = self.foreign.get(reader.version, 0) + 1
                elif names <= found.keys():
                    self._jobs.setdefault(found["id"], Job(**{name: found[name] for name in names}))
        return self._jobs

    def done(self) -> set[str]:
        return set(os.listdir(self.folder / "done"))

    def reopen(self, ids: Collection[str]) -> list[str]:
        """Return those of these jobs that count as done, but whose record cannot be read, because its file was damaged or lost.
        They are to be done again."""
        done = self.done() & set(ids)  # before the records are read: one that is finished meanwhile is not lost
        lost = sorted(done - {record["id"] for record in Store(self.folder).new_records()}) if done else []
        reopened = []
        for id_ in lost:
            try:  # only one of several processes that find it
                (self.folder / "done" / id_).rename(self.folder / "done" / f".{id_}.lost")
            except OSError:
                continue
            for path in (self.folder / "leases").glob(f"{id_}.*"):
                path.unlink(missing_ok=True)
            (self.folder / "done" / f".{id_}.lost").unlink(missing_ok=True)
            reopened.append(id_)
        return reopened

    # ------------------------------------------------------------------------------------------------------ leases

    def take(
        self, who: dict[str, Any], only: Collection[str] | None = None, without: Collection[str] = ()
    ) -> Lease | None:
        """Take a job that nobody has, with `only` one of these, and not one of those `without`. Returns None where all jobs are
        done, or others have the rest.

        Jobs that failed elsewhere come first. Those that failed on the only card of this worker come last, and only where no
        worker with another card is there.
        """
        with self.lock:
            jobs = self.jobs()
            done = self.done()
            leases = set(os.listdir(self.folder / "leases"))
            open_jobs = [
                job
                for id_, job in jobs.items()
                if id_ not in done and id_ not in without and (only is None or id_ in only)
            ]
            again = [job for job in open_jobs if f"{job.id}.1.failed" in leases]
            fresh = [job for job in open_jobs if f"{job.id}.1.failed" not in leases]
            mine = set(who["cards"])
            last = []
            for job in again:
                failure = self._failure(job, 1)
                if {failure.get("card", "")} >= mine:
                    last.append(job)
                elif lease := self._try(job, 2, leases, who):
                    return lease
            for job in fresh:
                if lease := self._try(job, 1, leases, who):
                    return lease
            for job in last:
                if not self._elsewhere(who, mine) and (lease := self._try(job, 2, leases, who)):
                    return lease
        return None

    def _try(self, job: Job, attempt: int, leases: set[str], who: dict[str, Any]) -> Lease | None:
        name = f"{job.id}.{attempt}"
        path = self.folder / "leases" / name
        if f"{name}.failed" in leases:
            if attempt == ATTEMPTS:
                self._give_up(job, who)
            return None
        if name in leases and not self._expired(job, attempt, path):
            return None
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return None
        with os.fdopen(fd, "w") as file:
            json.dump(who, file)
        if (self.folder / "done" / job.id).exists():  # it was finished after this looked for jobs that are not done
            path.unlink(missing_ok=True)
            return None
        return Lease(job, attempt, path, [self._failure(job, n) for n in range(1, attempt)])

    def _expired(self, job: Job, attempt: int, path: Path) -> bool:
        """Return whether a lease has run out and is removed. If it ran out after `begin`, note a failure instead; it stays."""
        try:
            age = self._now() - path.stat().st_mtime
            owner = json.loads(path.read_text() or "{}")
        except (OSError, ValueError):
            return False
        if not (age > self.lease_s or (owner and gone(owner))):
            return False
        begun = path.with_name(f"{path.name}.begun")
        if owner.get("kind") == "run" and gone(owner):
            begun.unlink(missing_ok=True)  # the whole tool was ended, and not by a candidate
        if begun.exists():
            said = f"worker {owner.get('name', '?')} on {owner.get('host', '?')} was no longer there"
            self._note_failure(job, attempt, owner, said)
            return False  # the next look finds the failure
        with contextlib.suppress(OSError):  # if several workers find it, only one of them moves it
            aside = path.with_name(f"{path.name}.old-{secrets.token_hex(4)}")
            os.rename(path, aside)
            aside.unlink()
            return True
        return False

    def _elsewhere(self, who: dict[str, Any], mine: set[str]) -> bool:
        """Return whether a worker with other cards than `mine` is there."""
        now = self._now()
        for path in (self.folder / "workers").glob("*.json"):
            with contextlib.suppress(OSError, ValueError):
                other = json.loads(path.read_text())
                alive = now - path.stat().st_mtime < self.lease_s and not gone(other)
                if alive and other["name"] != who["name"] and set(other["cards"]) - mine:
                    return True
        return False

    def _now(self) -> float:
        """Return the time by the file system's own clock, which also dates the leases."""
        path = self.folder / "workers" / f".clock-{os.getpid()}-{threading.get_ident()}"
        path.touch()
        now = path.stat().st_mtime
        path.unlink(missing_ok=True)
        return now

    def _failure(self, job: Job, attempt: int) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            return dict(json.loads((self.folder / "leases" / f"{job.id}.{attempt}.failed").read_text()))
        return {"reason": "not told", "worker": "?", "host": "?", "card": ""}

    def _note_failure(self, job: Job, attempt: int, who: dict[str, Any], reason: str, card: str = "") -> None:
        cards = who.get("cards") or [""]
        said = {
            "reason": one_line(reason),
            "worker": who.get("name", "?"),
            "host": who.get("host", "?"),
            "card": card or (cards[0] if len(cards) == 1 else ""),
        }
        write_whole(self.folder / "leases" / f"{job.id}.{attempt}.failed", json.dumps(said))

    def beat(self, leases: Sequence[Lease], who: dict[str, Any]) -> None:
        """Give a sign for these leases and for the worker."""
        for lease in leases:
            with contextlib.suppress(OSError):
                os.utime(lease.path)
        path = self.folder / "workers" / f"{who['name']}.json"
        try:
            os.utime(path)
        except OSError:
            write_whole(path, json.dumps(who))

    def give_back(self, lease: Lease) -> None:
        """Give back a job that is not finished, which then counts as never taken."""
        lease.pause()
        lease.path.unlink(missing_ok=True)

    def leave(self, leases: Sequence[Lease], who: dict[str, Any]) -> None:
        """Give back jobs that are not finished, and remove the worker."""
        for lease in leases:
            self.give_back(lease)
        (self.folder / "workers" / f"{who['name']}.json").unlink(missing_ok=True)

    # ------------------------------------------------------------------------------------------------------ records

    def lines(self, who: dict[str, Any]) -> Lines:
        """Create a file for a worker's records."""
        return Lines(self.folder / "records" / f"{who['name']}-{secrets.token_hex(4)}.jsonl", worker=who["name"])

    def finish(self, lines: Lines, lease: Lease, who: dict[str, Any], report: dict[str, Any], card: str) -> None:
        """Keep the result of a job."""
        record = {
            "schema": SCHEMA,
            "kind": "record",
            **{key: value for key, value in lease.job.record().items() if key not in ("reference", "candidate")},
            "attempt": lease.attempt,
            "failures": lease.failures,
            "worker": who["name"],
            "host": who["host"],
            "card": card,
            "report": report,
        }
        with self.lock:
            done = self.folder / "done" / lease.job.id
            if not done.exists():  # it may exist: this worker was taken for dead, and another one has done the job
                lines.append(record)
                done.touch()
        lease.pause()

    def fail(self, lines: Lines, lease: Lease, who: dict[str, Any], reason: str, card: str) -> bool:
        """Note that an attempt has failed. Returns whether it was the last one; if so, a record says that the tool failed."""
        lease.pause()
        self._note_failure(lease.job, lease.attempt, who, reason, card)
        if lease.attempt < ATTEMPTS:
            return False
        self._write_failure(lines, lease.job, who)
        return True

    def _give_up(self, job: Job, who: dict[str, Any]) -> None:
        """Write the record of a job whose last attempt failed without one: its worker died, perhaps just before writing it."""
        path = self.folder / "leases" / f"{job.id}.{ATTEMPTS}.failed"
        with contextlib.suppress(OSError):
            if self._failure(job, ATTEMPTS)["worker"] == who["name"] and self._now() - path.stat().st_mtime < 5:
                return  # this worker is writing it just now
            lines = self.lines(who)
            self._write_failure(lines, job, who)
            lines.close()

    def _write_failure(self, lines: Lines, job: Job, who: dict[str, Any]) -> None:
        failures = [self._failure(job, n) for n in range(1, ATTEMPTS + 1)]
        said = "; then ".join(f"on {f['worker']} {f['card']}".rstrip() + f": {f['reason']}" for f in failures)
        report = Report(job.reference, job.candidate, job.seed, Verdict.TOOL_FAILED, f"tried twice: {said}")
        lease = Lease(job, ATTEMPTS, self.folder / "leases" / f"{job.id}.{ATTEMPTS}", failures)
        self.finish(lines, lease, who, report.as_dict(), failures[-1]["card"])

    def new_records(self) -> Iterator[dict[str, Any]]:
        """Yield the records that have come since the last call, from all workers. A job may have two: the lease of a worker that
        was only slow may run out."""
        for path in sorted((self.folder / "records").glob("*.jsonl")):
            for record in self._record_files.setdefault(path, Reader(path)).new():
                if "id" in record and "report" in record:
                    yield record
