"""The public call: check the arguments, run a session, return its report."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from mm32.options import Baseline, Kernel

from . import machine
from .processes.capacity import place
from .processes.process import Limits
from .report import Report
from .session import Session
from .timing.stage import BASELINES

LARGEST_SEED = 2**62 - 1  # torch takes 64 bits, and later trials and probes add to the seed


class WrongArgument(ValueError):
    """An argument that no verification can be run with: a type of its own, since the run may raise a ValueError too."""


def verify(
    reference: str | Path,
    candidate: str | Path | None = None,
    *,
    kernel: Kernel | None = None,
    trials: int | None = None,
    seed: int | None = None,
    timeout: float = 300.0,
    memory_gib: float | None = None,
    baselines: Sequence[Baseline] = ("eager",),
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Compare a candidate with a reference: same outputs? faster?

    Args:
        reference: a script with `class Model(nn.Module)`, `get_inputs()` and `get_init_inputs()`.
        candidate: a script with `class ModelNew(nn.Module)`.
        kernel: instead of a candidate, a kernel of this library, which computes the reference's products.
        trials: how many random inputs to compare; by default 3, or 2 where the reference is slow.
        seed: seed of the first trial, from 0 to 2^62 - 1; by default a random one, which is in the report.
        timeout: seconds that the candidate may take for any one step, compiling included.
        memory_gib: host memory that the candidate's processes may use together; by default 16, or 3/4 of the machine's.
        baselines: what the candidate has to be faster than: "eager" torch, "compile" (torch.compile of the reference), "tf32"
            (the reference with TF32 allowed, on a GPU). The first decides the verdict, the others are timed too. Outputs are
            always judged by the eager fp32 reference.
        progress: called with a line of text whenever a stage begins, and while it lasts.

    Returns the report; `report.verdict.exit_code` is the command's exit code. Errors of the scripts are not raised. It may be
    called from any number of threads and processes: as many verifications run at once as the machine takes (two on a card; on a
    machine without one, half as many as it has cores, but at least two), and the others wait for a place.

    Raises ValueError for wrong arguments and FileNotFoundError for a script that does not exist.

    Example:
        >>> report = mm32.verify.verify("reference.py", "candidate.py")
        >>> report.verdict.name, report.timing["speedup"], report.left_out
        ('FASTER', 1.83, ['input 1 other than sorted'])
    """
    if (candidate is None) == (kernel is None):
        raise WrongArgument("give either a candidate script or the name of a kernel: 'auto' is mm32's own choice")
    if kernel is not None:
        from mm32.plan import check_kernel

        try:
            check_kernel(kernel)
        except ValueError as error:
            raise WrongArgument(str(error)) from None
        if kernel != "auto" and machine.card() is None:
            raise WrongArgument(
                f"the kernel {kernel!r} runs on a GPU, and torch finds none here: on a CPU mm32 calls torch's own product, which "
                "the kernel 'auto' has verified"
            )
    paths = [script_of(p) for p in (reference, candidate) if p is not None]
    memory_gib = check_options(trials, seed, timeout, memory_gib, baselines)
    check_baseline(baselines, machine.card() is not None)
    say = progress or (lambda text: None)
    session = Session(
        paths[0],
        paths[1] if candidate is not None else None,
        kernel,
        trials,
        secrets.randbelow(2**31) if seed is None else seed,
        Limits(timeout, memory_gib),
        say,
    )
    session.baselines = tuple(baselines)

    def waiting(seconds: float) -> None:
        say(f"waiting for a place: as many verifications run as this machine takes ({seconds:.0f} s)")

    with place(waiting):
        return session.run()


def script_of(given: str | Path) -> Path:
    """Return the absolute path of a script. Raises WrongArgument if it is not a path, FileNotFoundError if it is not a file."""
    if not isinstance(given, (str, Path)):
        raise WrongArgument(
            f"a script is given by its path, got {type(given).__name__}: write the class to a file of its own"
        )
    if isinstance(given, str) and "\n" in given:
        raise WrongArgument(
            f"a script is given by its path, not by its text, got {len(given)} characters: write it to a file"
        )
    path = Path(given).resolve()
    if path.is_dir():
        raise FileNotFoundError(
            f"{path} is a folder, not a script: mm32.verify.verify_many takes many pairs of scripts"
        )
    if not path.is_file():
        raise FileNotFoundError(f"there is no script {path}")
    return path


def check_options(
    trials: int | None, seed: int | None, timeout: float, memory_gib: float | None, baselines: Sequence[str]
) -> float:
    """Return the host memory in GiB that a candidate may use. Raises WrongArgument for what no verification can be run with."""
    if trials is not None and not (isinstance(trials, int) and trials >= 1):
        raise WrongArgument(f"trials must be an integer, 1 at least, got {trials!r}")
    if seed is not None and not (isinstance(seed, int) and 0 <= seed <= LARGEST_SEED):
        raise WrongArgument(f"seed must be an integer from 0 to 2^62 - 1, got {seed!r}")
    if not (isinstance(timeout, (int, float)) and 0 < timeout < float("inf")):
        raise WrongArgument(f"timeout must be a positive number, got {timeout!r}")
    if memory_gib is None:
        memory_gib = min(16.0, psutil.virtual_memory().total / 2**30 * 0.75)
    if not (isinstance(memory_gib, (int, float)) and memory_gib > 0):
        raise WrongArgument(f"memory_gib must be a positive number, got {memory_gib!r}")
    if isinstance(baselines, str):
        raise WrongArgument(f"baselines are given as a list, ({baselines!r},) say, got the string {baselines!r}")
    unknown = [name for name in baselines if name not in BASELINES]
    if unknown or not baselines or len(set(baselines)) < len(baselines):
        raise WrongArgument(f"baselines are some of {', '.join(BASELINES)}, each once, got {list(baselines)}")
    return memory_gib


def check_baseline(baselines: Sequence[str], card: bool) -> None:
    """Raise WrongArgument if the baseline that decides is TF32's and no card is used. If a further baseline cannot be run, the
    report says so."""
    if baselines[0] == "tf32" and not card:
        raise WrongArgument(
            "baseline tf32 decides and needs a GPU, and none is used here: put eager or compile first, or leave it out for eager"
        )
