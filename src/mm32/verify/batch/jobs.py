"""What a batch verifies: pairs of scripts, identified by their contents, with the options that they are verified with."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import mm32

from ..entry import LARGEST_SEED, WrongArgument, check_options, script_of


@dataclass(frozen=True)
class Options:
    """Options as for `verify`. `seed`: the first trial's; None draws one for each reference and run, when its jobs are made."""

    trials: int | None = None
    seed: int | None = None
    timeout: float = 300.0
    memory_gib: float | None = None
    baselines: tuple[str, ...] = ("eager",)

    def __post_init__(self) -> None:
        check_options(self.trials, self.seed, self.timeout, self.memory_gib, self.baselines)

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "baselines": list(self.baselines)}


@dataclass(frozen=True)
class Job:
    """One candidate to verify.

    `id`: a hash of the contents of both scripts, mm32's version, the options and `name`. `place`: where it belongs in
    KernelBench's order (level, problem, sample); empty otherwise.
    """

    id: str
    name: str
    reference: str
    candidate: str
    reference_sha256: str
    candidate_sha256: str
    options: dict[str, Any]
    seed: int
    place: dict[str, int] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Pair:
    """A reference and a candidate.

    `name`: the name by which the candidate is listed. `place`: its place in KernelBench's layout ("level", "problem", "sample").
    """

    reference: Path
    candidate: Path
    name: str
    place: dict[str, int] = field(default_factory=dict)


def digest(path: Path) -> str:
    """Return the digest of a script's contents. Raises OSError."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _checked(path: Path) -> str:
    """Return the digest of a script that the user has named. Raises WrongArgument where it cannot be read, or its name is not
    UTF-8."""
    try:
        str(path).encode()
        return digest(path)
    except UnicodeEncodeError:
        raise WrongArgument(f"the name of {str(path)!a} is not UTF-8: rename it") from None
    except OSError as error:
        raise WrongArgument(f"{path} cannot be read: {error.strerror or error}") from None


def in_folder(reference: Path, folder: Path) -> list[Pair]:
    """Return every *.py of a folder as a candidate for one reference; the reference itself, if it lies there, is left out."""
    found = sorted(path for path in folder.glob("*.py") if path.is_file() and not path.samefile(reference))
    if not found:
        raise WrongArgument(f"there are no candidates, *.py, in {folder}")
    return [Pair(reference, path, path.name) for path in found]


def of_pairs(pairs: Iterable[Pair | Sequence[str | Path]]) -> list[Pair]:
    """Return pairs of paths, as `verify_many` takes them, as a list of `Pair`. Raises FileNotFoundError and ValueError."""
    found = []
    for pair in [pairs] if isinstance(pairs, (str, Path)) else pairs:
        if not isinstance(pair, Pair):
            if isinstance(pair, (str, Path)) or len(pair) != 2:
                raise ValueError(f"verify_many takes pairs of paths, (reference, candidate), got {pair!r}")
            reference, candidate = (script_of(path) for path in pair)
            pair = Pair(reference, candidate, str(candidate))
        for path in (pair.reference, pair.candidate):
            script_of(path)
        found.append(pair)
    return found


def make(pairs: Sequence[Pair], options: Options) -> list[Job]:
    """Return the jobs of these pairs. Candidates of one reference share a seed, which nobody has known before now. Raises
    WrongArgument for a script that cannot be read.

    A candidate's own process is told its seed in any case, so another candidate's seed tells it nothing. But a candidate that was
    written after a seed was used must not meet that seed again. A job that a store already has keeps the seed that it has there.
    """
    seeds: dict[str, int] = {}
    hashes = {path: _checked(path) for pair in pairs for path in (pair.reference, pair.candidate)}
    said = json.dumps({"mm32": mm32.__version__, **options.record()}, sort_keys=True)
    jobs = []
    for pair in pairs:
        reference, candidate = hashes[pair.reference], hashes[pair.candidate]
        key = "\0".join([reference, candidate, said, pair.name])
        drawn = seeds.setdefault(reference, secrets.randbelow(2**31))
        jobs.append(
            Job(
                hashlib.sha256(key.encode()).hexdigest()[:24],
                pair.name,
                str(pair.reference.resolve()),
                str(pair.candidate.resolve()),
                reference,
                candidate,
                options.record(),
                drawn if options.seed is None else options.seed,
                dict(pair.place),
            )
        )
    assert all(0 <= job.seed <= LARGEST_SEED for job in jobs)
    return jobs
