"""`mm32 verify` and `mm32 demo`."""

from __future__ import annotations

import sys
import traceback
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

MANY = "Many candidates (docs/batches.md)"  # a box of its own in the help of verify


def verify(
    reference: Annotated[
        Path | None,
        typer.Argument(
            exists=True, dir_okay=False, readable=True, help="Script with class Model, get_inputs, get_init_inputs."
        ),
    ] = None,
    candidate: Annotated[
        Path | None,
        typer.Argument(exists=True, readable=True, help="Script with class ModelNew, or a folder of such scripts."),
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
    quiet: Annotated[bool, typer.Option("--quiet", help="Show only the line of the verdict.")] = False,
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
    to_stdout = json is not None and str(json) == "-"
    for option, file in (("--json", None if to_stdout else json), ("--html", html)):
        if file is not None and (why := unwritable(file)) is not None:
            raise typer.BadParameter(why, param_hint=option)
    if example is not None:
        if candidate is not None or worker is not None or kernelbench is not None:
            raise typer.BadParameter("--example stands for REFERENCE: give a candidate beside it, or none")
        reference, candidate = _example(example), reference
        kernel = "auto" if candidate is None and kernel is None else kernel
    baselines = tuple(baseline or ["eager"])
    many = worker is not None or kernelbench is not None or (candidate is not None and candidate.is_dir())
    only_many = {"--problems": problems, "--store": store, "--gpus": gpus, "--builders": builders}
    only_many |= {"--submit": submit or None, "--eval-results": eval_results}
    only_many |= {"--exit-code": exit_rule if exit_rule != "worst" else None}
    given = [name for name, value in only_many.items() if value is not None]
    if not many and given:
        raise typer.BadParameter(f"{given[0]} is for many candidates: give a folder, --kernelbench or --worker")
    if many and kernel is not None:
        raise typer.BadParameter("--kernel is for one reference alone")
    if worker is not None and reference is not None:
        raise typer.BadParameter("--worker takes its jobs from the store: give no scripts")
    if not many and reference is None:
        raise typer.BadParameter(
            "give a REFERENCE, or --example tt to try it; for many candidates, --kernelbench or --worker"
        )

    def of_many() -> int:
        from mm32.verify.batch import command as batch

        if worker is not None:
            return batch.work(worker, gpus, builders)
        return batch.run(
            batch.Request(
                batch.Options(trials, seed, timeout, memory, baselines),
                reference=reference,
                folder=candidate,
                kernelbench=kernelbench,
                problems=problems,
                store=store,
                gpus=gpus,
                builders=builders,
                submit=submit,
                exit_rule=exit_rule,
                results=json,
                eval_results=eval_results,
                html=html,
                quiet=quiet,
                to_stdout=to_stdout,
            )
        )

    def of_one() -> int:
        from mm32.verify import entry
        from mm32.verify import html as reports
        from mm32.verify.page import Page

        assert reference is not None
        # As they are before anything runs: a candidate may be able to write over its own file.
        sources = [None if path is None else reports.read(path) for path in (candidate, reference)] if html else []
        with _Progress() as progress:
            report = entry.verify(
                reference,
                candidate,
                kernel=cast("Kernel | None", kernel),
                trials=trials,
                seed=seed,
                timeout=timeout,
                memory_gib=memory,
                baselines=cast("tuple[Baseline, ...]", baselines),
                progress=progress,
            )
        if to_stdout:
            sys.stdout.write(report.json() + "\n")
        elif json is not None:
            _write(json, report.json() + "\n")
        if html is not None:
            _write(html, reports.page(report.as_dict(), *sources))
        detail = "quiet" if quiet else "verbose" if verbose else "normal"
        Page(report, rich.console.Console(stderr=to_stdout), detail).print()
        return report.exit_code

    raise typer.Exit(_exit_code(of_many if many else of_one))


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
    from mm32.verify import Verdict
    from mm32.verify.page import Page

    with _Progress() as progress:
        report, below = demonstration.run(progress)
    console = rich.console.Console()
    Page(report, console).print()
    console.print(f"\n{below}", markup=False, highlight=False, soft_wrap=True)
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


class _Progress:
    """Progress on standard error: one line that changes on a terminal, otherwise a line for each stage."""

    def __enter__(self) -> Callable[[str], None]:
        self.console = rich.console.Console(stderr=True)
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
