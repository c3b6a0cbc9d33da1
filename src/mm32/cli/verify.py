"""`mm32 verify` and `mm32 demo`."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import traceback
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import rich.console
import rich.markup
import typer

from mm32.files import unwritable

if TYPE_CHECKING:
    from collections.abc import Callable

    from mm32.options import Baseline, Kernel

# Written out here, since the help must not import torch. A test compares it with verdict.EXIT_MEANINGS.
EXIT_CODES = """Exit codes:

 0  same and faster
 1  same, slower
 2  wrong usage
 3  same, speed inconclusive (the interval is not clear of 1)
 4  same, times suspect (the reference was slower beside the candidate, or a call by itself gains nothing)
 5  different
 6  the candidate could not be built or loaded
 7  the candidate crashed
 8  the candidate timed out
 9  the reference itself failed
 10  no verdict: the check could not have failed
 70  an error in this tool itself
 130  interrupted"""

FOR_MANY = ("--problems", "--store", "--gpus", "--builders", "--submit", "--eval-results", "--exit-code")
MANY = "Many candidates (docs/batches.md)"  # a box of its own in the help of verify


def verify(
    reference: Annotated[
        Path | None,
        typer.Argument(
            exists=True,
            dir_okay=False,
            readable=True,
            metavar="REFERENCE",
            help="Script with class Model, get_inputs, get_init_inputs.",
        ),
    ] = None,
    candidate: Annotated[
        Path | None,
        typer.Argument(
            exists=True,
            readable=True,
            metavar="CANDIDATE",
            help="Script with class ModelNew, or a folder of such scripts.",
        ),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="In place of CANDIDATE: this kernel of mm32, in the reference's model."),
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="In place of REFERENCE: an example of mm32's: linear_relu, nn, nt, small (for a CPU), tn, tt or tt_relu. "
            "Without a CANDIDATE, --kernel auto is the candidate.",
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Random inputs to compare. Default: 3, fewer if they take long.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the first trial. Default: a random one.")] = None,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report as JSON; - for standard output.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the report as HTML, with pictures; for many candidates, a table and a page for each.",
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(min=1, metavar="SECONDS", help="Time limit of each step of the candidate, compiling included."),
    ] = 300.0,
    memory: Annotated[
        float | None,
        typer.Option(
            min=0.25, metavar="GIB", help="Limit of the candidate's host memory. Default: 16, or 3/4 of this machine's."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show only the line of the verdict, and no progress.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show every check, including those that passed.")] = False,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="How the reference is timed: eager, compile (torch.compile) or tf32. May be repeated; the first decides.",
        ),
    ] = None,
    kernelbench: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            exists=True,
            file_okay=False,
            rich_help_panel=MANY,
            help="In place of scripts: every candidate of this KernelBench run.",
        ),
    ] = None,
    problems: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            exists=True,
            file_okay=False,
            rich_help_panel=MANY,
            help="KernelBench's problems. Default: searched for in the run's folder and above it.",
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            rich_help_panel=MANY,
            help="Where jobs and results are kept. Default: beside the candidates' folder.",
        ),
    ] = None,
    worker: Annotated[
        Path | None,
        typer.Option(
            metavar="STORE",
            exists=True,
            file_okay=False,
            rich_help_panel=MANY,
            help="In place of scripts: do the jobs of this store.",
        ),
    ] = None,
    submit: Annotated[
        bool,
        typer.Option("--submit", rich_help_panel=MANY, help="Only put the jobs into the store, for workers."),
    ] = False,
    gpus: Annotated[
        str | None,
        typer.Option(
            metavar="N|all", rich_help_panel=MANY, help="Cards to use. Default: all, or the CPU if there is none."
        ),
    ] = None,
    builders: Annotated[
        int | None,
        typer.Option(min=1, rich_help_panel=MANY, help="Candidates to build at once. Default: by the number of cores."),
    ] = None,
    exit_rule: Annotated[
        str,
        typer.Option(
            "--exit-code",
            metavar="RULE",
            rich_help_panel=MANY,
            help="Exit code by the worst verdict (worst), by failures that say nothing of a candidate (tool), or 0 (none).",
        ),
    ] = "worst",
    eval_results: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", rich_help_panel=MANY, help="With --kernelbench: write its eval_results.json here."
        ),
    ] = None,
) -> None:
    """Compare a candidate with a reference: same outputs? faster? The verdict is the last line."""
    asked = _Asked(
        reference=reference, candidate=candidate, kernel=kernel, example=example, trials=trials, seed=seed, json=json, html=html,
        timeout=timeout, memory=memory, quiet=quiet, verbose=verbose, baselines=tuple(baseline or ["eager"]),
        kernelbench=kernelbench, problems=problems, store=store, worker=worker, submit=submit, gpus=gpus, builders=builders,
        exit_rule=exit_rule, eval_results=eval_results,
    )  # fmt: skip
    asked.resolve()
    raise typer.Exit(_exit_code(asked.of_many if asked.many else asked.of_one))


@dataclass(kw_only=True)
class _Asked:
    """What `mm32 verify` was asked for, by the names of its parameters."""

    reference: Path | None
    candidate: Path | None
    kernel: str | None
    example: str | None
    trials: int | None
    seed: int | None
    json: Path | None
    html: Path | None
    timeout: float
    memory: float | None
    quiet: bool
    verbose: bool
    baselines: tuple[str, ...]
    kernelbench: Path | None
    problems: Path | None
    store: Path | None
    worker: Path | None
    submit: bool
    gpus: str | None
    builders: int | None
    exit_rule: str
    eval_results: Path | None

    @property
    def to_stdout(self) -> bool:
        return self.json is not None and str(self.json) == "-"

    @property
    def many(self) -> bool:
        """Whether there are many candidates."""
        folder = self.candidate is not None and self.candidate.is_dir()
        return self.worker is not None or self.kernelbench is not None or folder

    def resolve(self) -> None:
        """Put an example in the reference's place. Raises typer.BadParameter for what does not go together."""
        for option, file in (("--json", None if self.to_stdout else self.json), ("--html", self.html)):
            if file is not None and (why := unwritable(file)) is not None:
                raise typer.BadParameter(why, param_hint=option)
        if self.html is not None and str(self.html) == "-":
            raise typer.BadParameter("is a file with pictures beside the text: give its name", param_hint="--html")
        if (
            self.html is not None
            and self.json is not None
            and os.path.realpath(self.html) == os.path.realpath(self.json)
        ):
            raise typer.BadParameter(f"{self.html} is the file of --json too", param_hint="--html")
        if self.quiet and self.verbose:
            raise typer.BadParameter("--quiet shows less and --verbose more: give one of them")
        if self.example is not None:
            if self.candidate is not None or self.worker is not None or self.kernelbench is not None:
                raise typer.BadParameter("--example stands for REFERENCE: give a candidate beside it, or none")
            self.reference, self.candidate = _example(self.example), self.reference
            self.kernel = "auto" if self.candidate is None and self.kernel is None else self.kernel
        if self.worker is not None and (self.reference is not None or self.kernelbench is not None):
            raise typer.BadParameter("--worker takes its jobs from the store: give no scripts and no --kernelbench")
        refused = self._refused()
        if given := [option for option in self._given() if option in refused]:
            raise typer.BadParameter(f"{given[0]} {refused[given[0]]}")
        if not self.many and self.reference is None:
            raise typer.BadParameter(
                "give a REFERENCE, or --example tt to try it; for many candidates, --kernelbench or --worker"
            )

    def _given(self) -> list[str]:
        """The options that have another value than their default."""
        defaults = {name: parameter.default for name, parameter in inspect.signature(verify).parameters.items()}
        defaults |= {"baselines": ("eager",)}
        names = {"exit_rule": "--exit-code", "eval_results": "--eval-results", "baselines": "--baseline"}
        options = (field.name for field in fields(self) if field.name not in ("reference", "candidate"))
        return [names.get(name, f"--{name}") for name in options if getattr(self, name) != defaults[name]]

    def _refused(self) -> dict[str, str]:
        """The options that would have no effect beside the others, and why: a store keeps its jobs' options and results."""
        if not self.many:
            return dict.fromkeys(FOR_MANY, "is for many candidates: give a folder, --kernelbench or --worker")
        refused = {
            "--kernel": "is for one reference alone",
            "--verbose": "is for one candidate: a folder's are a line each",
        }
        if self.worker is not None:
            why = "has no effect beside --worker: it is what the jobs were submitted with, and their results stay in the store"
            used = ("--worker", "--gpus", "--builders")
            return dict.fromkeys((option for option in self._given() if option not in used), why)
        if self.submit:
            why = "has no effect beside --submit, which only stores jobs: give it to the same command without --submit"
            refused |= dict.fromkeys(("--json", "--html", "--eval-results", "--exit-code", "--gpus", "--builders"), why)
        return refused

    def of_many(self) -> int:
        from mm32.verify.batch import command as batch

        if self.worker is not None:
            return batch.work(self.worker, self.gpus, self.builders)
        return batch.run(
            batch.Request(
                batch.Options(self.trials, self.seed, self.timeout, self.memory, self.baselines),
                reference=self.reference,
                folder=self.candidate,
                kernelbench=self.kernelbench,
                problems=self.problems,
                store=self.store,
                gpus=self.gpus,
                builders=self.builders,
                submit=self.submit,
                exit_rule=self.exit_rule,
                results=self.json,
                eval_results=self.eval_results,
                html=self.html,
                quiet=self.quiet,
                to_stdout=self.to_stdout,
            )
        )

    def of_one(self) -> int:
        from mm32.verify import console, entry
        from mm32.verify import html as reports
        from mm32.verify.page import Page

        assert self.reference is not None
        # As they are before anything runs: a candidate may be able to write over its own file.
        scripts = (self.candidate, self.reference) if self.html else ()
        sources = [None if path is None else reports.read(path) for path in scripts]
        with contextlib.nullcontext(_silent) if self.quiet else _Progress() as progress:
            report = entry.verify(
                self.reference,
                self.candidate,
                kernel=cast("Kernel | None", self.kernel),
                trials=self.trials,
                seed=self.seed,
                timeout=self.timeout,
                memory_gib=self.memory,
                baselines=cast("tuple[Baseline, ...]", self.baselines),
                progress=progress,
            )
        if self.to_stdout:
            console.write(report.json() + "\n")
        elif self.json is not None:
            _write(self.json, report.json() + "\n")
        if self.html is not None:
            _write(self.html, reports.page(report.as_dict(), *sources))
        detail = "quiet" if self.quiet else "verbose" if self.verbose else "normal"
        Page(report, console.Console(stderr=self.to_stdout), detail).print()
        return report.exit_code


def _exit_code(run: Callable[[], int]) -> int:
    """What `run` returns. An error of the tool itself is 70: Python's own code for it, 1, would mean "same, slower"."""
    from mm32 import error_page

    try:  # the import too: torch or psutil may be missing or broken
        from mm32.verify.entry import WrongArgument

        try:
            return run()
        except WrongArgument as error:
            raise typer.BadParameter(str(error)) from error
    except (typer.Exit, typer.BadParameter):
        raise
    except Exception as error:
        traceback.print_exc()
        if said := error_page.pointer(str(error)):
            print(f"mm32: {said}", file=sys.stderr)
        return 70


def _example(name: str) -> Path:
    from mm32 import demo

    try:
        return demo.example(name)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--example") from error


def demo() -> None:
    """Verify mm32's own kernel on an example and show the page; without a GPU, say what one would add. Exits 0 where the outputs
    are the same, whichever is faster, else as `mm32 verify` does."""
    from mm32 import demo as demonstration
    from mm32.verify import Verdict, console
    from mm32.verify.page import Page

    with _Progress() as progress:
        report, below = demonstration.run(progress)
    page = console.Console()
    Page(report, page).print()
    page.print(f"\n{below}", markup=False, highlight=False, soft_wrap=True)
    # On a CPU both sides are torch: neither is faster.
    fine = (Verdict.FASTER, Verdict.SLOWER, Verdict.INCONCLUSIVE)
    raise typer.Exit(0 if report.verdict in fine else report.exit_code)


def _write(path: Path, text: str) -> None:
    """Write a report that was asked for. Where that fails only now, as on a full disk, the exit code is 70: no file, no proof."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"mm32: {path} could not be written: {error.strerror or error}", file=sys.stderr)
        raise typer.Exit(70) from None


def _silent(stage: str) -> None:
    """Take a stage's name and show nothing."""


class _Progress:
    """Progress on standard error: one line that changes on a terminal, otherwise a line for each stage."""

    def __enter__(self) -> Callable[[str], None]:
        from mm32.verify import console

        self.console = console.Console(stderr=True)
        self.status = self.console.status("starting") if self.console.is_terminal else None
        self.last = ""
        if self.status:
            self.status.start()
        return self.show

    def show(self, text: str) -> None:
        if self.status:
            self.status.update(rich.markup.escape(text))
        elif text and text.split(" (")[0] != self.last and not text.startswith("timing, "):
            self.last = text.split(" (")[0]
            self.console.print(f"mm32: {self.last}", markup=False, highlight=False, soft_wrap=True)

    def __exit__(self, *_: object) -> None:
        if self.status:
            self.status.stop()
