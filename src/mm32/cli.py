"""The command line: parse, call, print. Nothing is decided here."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

try:
    import rich.console
    import rich.markup
    import typer
except ImportError:
    typer = None  # type: ignore[assignment]

from mm32.files import unwritable

if TYPE_CHECKING:
    from collections.abc import Callable

# Written out here, since the help must not import torch. A test compares it with verdict.EXIT_MEANINGS.
EXIT_CODES = """Exit codes:

 0  same and faster
 1  same, slower
 2  wrong usage
 3  same, speed inconclusive (the interval is not clear of 1)
 4  same, times suspect (the reference was slower beside the candidate than before it)
 5  different
 6  the candidate could not be built or loaded
 7  the candidate crashed
 8  the candidate timed out
 9  the reference itself failed
 10  no verdict: the check could not have failed
 70  an error in this tool itself
 130  interrupted"""

MANY = "Many candidates (docs/batches.md)"  # a box of its own in the help of verify

if typer is not None:
    app = typer.Typer(
        name="mm32",
        help="fp32 matmul for PyTorch on NVIDIA GPUs, and proof that a kernel is right and faster.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
    )

    def _version(wanted: bool) -> None:
        if wanted:
            import mm32

            print(f"mm32 {mm32.__version__}")
            raise typer.Exit

    @app.callback()
    def _root(
        version: Annotated[
            bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
        ] = False,
    ) -> None:
        pass

    @app.command(epilog=EXIT_CODES.replace("\n ", "\n- ").replace("\n", "\n\n"))
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
            typer.Option(metavar="NAME", help="Instead of CANDIDATE: this kernel of mm32 in the reference's model."),
        ] = None,
        example: Annotated[
            str | None,
            typer.Option(
                metavar="NAME",
                help="Instead of REFERENCE: one that comes with mm32: tt, nt, ..., small (for a CPU). "
                "Without a CANDIDATE: with --kernel auto.",
            ),
        ] = None,
        trials: Annotated[
            int | None, typer.Option(min=1, help="Random inputs to compare. Default: 3, fewer where they take long.")
        ] = None,
        seed: Annotated[int | None, typer.Option(min=0, help="Seed of the first trial. Default: a random one.")] = None,
        json: Annotated[
            Path | None, typer.Option(metavar="FILE", help="Write the report as JSON; - for standard output.")
        ] = None,
        html: Annotated[
            Path | None,
            typer.Option(
                metavar="FILE", help="Write the report as HTML, with pictures; of many: a table and its pages."
            ),
        ] = None,
        timeout: Annotated[
            float, typer.Option(min=1, metavar="SECONDS", help="For any one step of the candidate, compiling included.")
        ] = 300.0,
        memory: Annotated[
            float | None,
            typer.Option(
                min=0.25, metavar="GIB", help="Host memory of the candidate. Default: 16, or 3/4 of this machine's."
            ),
        ] = None,
        quiet: Annotated[bool, typer.Option("--quiet", help="Show the verdict's line alone.")] = False,
        verbose: Annotated[
            bool, typer.Option("--verbose", help="Show every check, also those that went well.")
        ] = False,
        baseline: Annotated[
            list[str] | None,
            typer.Option(
                metavar="NAME",
                help="Faster than what: eager, compile (torch.compile of it) or tf32. Again for more; the first decides.",
            ),
        ] = None,
        kernelbench: Annotated[
            Path | None,
            typer.Option(
                metavar="RUN",
                exists=True,
                file_okay=False,
                rich_help_panel=MANY,
                help="Instead: every candidate of this KernelBench run.",
            ),
        ] = None,
        problems: Annotated[
            Path | None,
            typer.Option(
                metavar="FOLDER",
                exists=True,
                file_okay=False,
                rich_help_panel=MANY,
                help="KernelBench's problems. Default: looked for.",
            ),
        ] = None,
        store: Annotated[
            Path | None,
            typer.Option(
                metavar="FOLDER",
                rich_help_panel=MANY,
                help="Of many: where all is kept. Default: beside the candidates' folder.",
            ),
        ] = None,
        worker: Annotated[
            Path | None,
            typer.Option(
                metavar="STORE",
                exists=True,
                file_okay=False,
                rich_help_panel=MANY,
                help="Instead: do the jobs of this store.",
            ),
        ] = None,
        submit: Annotated[
            bool,
            typer.Option(
                "--submit", rich_help_panel=MANY, help="Of many: only put the jobs into the store, for workers."
            ),
        ] = False,
        gpus: Annotated[
            str | None,
            typer.Option(
                metavar="N|all", rich_help_panel=MANY, help="Of many: cards to use. Default: all; the CPU without any."
            ),
        ] = None,
        builders: Annotated[
            int | None,
            typer.Option(
                min=1, rich_help_panel=MANY, help="Of many: how many to build at once. Default: as cores allow."
            ),
        ] = None,
        exit_rule: Annotated[
            str,
            typer.Option(
                "--exit-code",
                metavar="RULE",
                rich_help_panel=MANY,
                help="Of many: by the worst verdict, the tool's own, or none.",
            ),
        ] = "worst",
        eval_results: Annotated[
            Path | None,
            typer.Option(
                metavar="FILE", rich_help_panel=MANY, help="Of --kernelbench: write its eval_results.json here."
            ),
        ] = None,
    ) -> None:
        """Compare a candidate with a reference: same outputs? faster? The verdict is the last line."""
        to_stdout = json is not None and str(json) == "-"
        if json is not None and not to_stdout and (why := unwritable(json)) is not None:
            raise typer.BadParameter(why, param_hint="--json")
        if html is not None and (why := unwritable(html)) is not None:
            raise typer.BadParameter(why, param_hint="--html")
        from mm32.verify import entry
        from mm32.verify import html as reports
        from mm32.verify.page import Page

        if example is not None:
            from mm32 import demo

            if candidate is not None or worker is not None or kernelbench is not None:
                raise typer.BadParameter("--example stands for REFERENCE: give a candidate beside it, or none")
            try:
                reference, candidate = demo.example(example), reference
            except ValueError as error:
                raise typer.BadParameter(str(error), param_hint="--example") from None
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
        if many:
            from mm32.verify.batch import command as batch

            try:
                if worker is not None:
                    raise typer.Exit(batch.work(worker, gpus, builders))
                options = batch.Options(trials, seed, timeout, memory, baselines)
                code = batch.run(
                    reference,
                    candidate,
                    kernelbench,
                    problems,
                    store,
                    options,
                    gpus,
                    builders,
                    submit,
                    exit_rule,
                    json,
                    eval_results,
                    html,
                    quiet,
                    to_stdout,
                )
            except entry.WrongArgument as error:
                raise typer.BadParameter(str(error)) from error
            except (typer.Exit, KeyboardInterrupt):
                raise
            except Exception:
                traceback.print_exc()
                raise typer.Exit(70) from None
            raise typer.Exit(code)
        if reference is None:
            raise typer.BadParameter("give a REFERENCE, --kernelbench or --worker")
        # As they are before anything runs: a candidate may be able to write over its own file.
        sources = [None if path is None else reports.read(path) for path in (candidate, reference)] if html else []

        try:
            with _progress() as progress:
                report = entry.verify(
                    reference,
                    candidate,
                    kernel=kernel,
                    trials=trials,
                    seed=seed,
                    timeout=timeout,
                    memory_gib=memory,
                    baselines=baselines,
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
        except entry.WrongArgument as error:
            raise typer.BadParameter(str(error)) from error
        except typer.Exit:
            raise
        except Exception:
            # Python's own exit code for this, 1, would mean "same, slower".
            traceback.print_exc()
            raise typer.Exit(70) from None
        raise typer.Exit(report.exit_code)

    @app.command()
    def demo() -> None:
        """Verify mm32's own kernel on an example and show the page; without a GPU, say what one would add."""
        from mm32 import demo as demonstration
        from mm32.verify import Verdict
        from mm32.verify.page import Page

        with _progress() as progress:
            report, below = demonstration.run(progress)
        console = rich.console.Console()
        Page(report, console).print()
        console.print(f"\n{below}", markup=False, highlight=False, soft_wrap=True)
        # On a CPU both sides are torch: neither is faster.
        fine = (Verdict.FASTER, Verdict.SLOWER, Verdict.INCONCLUSIVE)
        raise typer.Exit(0 if report.verdict in fine else report.exit_code)

    Product = Annotated[
        str | None,
        typer.Argument(
            metavar="MxKxN[:layout]",
            show_default=False,
            help="(M, K) times (K, N), such as 2048x8192x4096:tt. The layout says how A and B are stored: n as multiplied, "
            "t transposed; nn (default), nt, tn or tt. One number is a square; explain takes ranges too, as bench --shapes.",
        ),
    ]
    Bias = Annotated[bool, typer.Option("--bias", help="Add a bias of shape (N,).")]
    Activation = Annotated[str | None, typer.Option(metavar="NAME", help="Apply relu, gelu, ... to the result.")]
    Precision = Annotated[str, typer.Option(metavar="NAME", help="What error is allowed: fp32, bf16x6, ieee or tf32.")]
    Kernel = Annotated[str, typer.Option(metavar="NAME", help="A kernel by name, or auto.")]

    def _products(product: str | None, default: str = "nn") -> list[tuple[str, int, int, int]]:
        """Layout, M, N and K of each, as `gemm.from_layout` takes them. `default`: the layout where none is given."""
        from mm32 import sizes

        if product is None:
            raise typer.BadParameter(f"give the product's sizes and layout, such as {sizes.EXAMPLE}")
        return [(asked.layout or default, asked.m, asked.n, asked.k) for asked in sizes.parse(product)]

    @app.command()
    def export(
        product: Product = None,
        bias: Bias = False,
        activation: Activation = None,
        precision: Precision = "fp32",
        kernel: Kernel = "auto",
        linear: Annotated[
            bool, typer.Option("--linear", help="A layer: layout nt, weight and bias held as parameters.")
        ] = False,
        output: Annotated[
            Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: standard output.")
        ] = None,
        force: Annotated[bool, typer.Option("--force", help="Write over FILE if it exists.")] = False,
    ) -> None:
        """Write one self-contained script: class ModelNew with the CUDA source inside, built by load_inline."""
        from mm32 import collect_env
        from mm32.export import export as script
        from mm32.export import write

        device, present = collect_env.planning_device()
        options = {"bias": bias, "activation": activation, "precision": precision, "kernel": kernel, "linear": linear}
        try:
            several = _products(product, "nt" if linear else "nn")
            if len(several) > 1:
                raise typer.BadParameter(f"{product} has {len(several)} products; a file is written for one")
            text = script(*several[0], device=device, **options)  # type: ignore[arg-type]
            if output is None:
                sys.stdout.write(text)
                return
            if (why := unwritable(output)) is not None:
                raise typer.BadParameter(why, param_hint="--output")
            write(output, text, force=force)
        except FileExistsError:
            raise typer.BadParameter(f"{output} exists: --force writes over it") from None
        except (ValueError, OSError) as error:
            raise typer.BadParameter(str(error)) from error
        print(f"wrote {output}, planned for {device.name}{'' if present else ' (no CUDA device here)'}")
        print(f"check it: mm32 verify REFERENCE {output}")

    @app.command()
    def explain(
        product: Product = None,
        bias: Bias = False,
        activation: Activation = None,
        precision: Precision = "fp32",
        kernel: Kernel = "auto",
    ) -> None:
        """Say which kernel would compute a product, how, and why. Nothing is computed."""
        from mm32 import collect_env, gemm, plan, settings

        device, present = collect_env.planning_device()
        try:
            asked = [
                gemm.from_layout(*one, bias=bias, activation=activation, precision=precision)
                for one in _products(product)
            ]
            limit = settings.workspace_limit()
            planned = [plan.plan(one, device, kernel, torch="fp32", limit=limit) for one in asked]
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
        print("\n\n".join(one.explain() for one in planned))
        if not present:
            print(f"no CUDA device here: planned for an {device.name}")
        if off := settings.disabled():
            print(f"{off}: mm32.matmul leaves this product to torch")

    @app.command()
    def bench(
        shapes: Annotated[
            str | None,
            typer.Option(
                metavar="LIST",
                help="Sets (quick, main, shapes, small, random, ladder, ieee, auto) and sizes MxKxN[:layout][:distribution], "
                "separated by commas, such as 2048x8192x4096:tt,1000x1000x1000:rand. An axis may be a range or a list: "
                "512..4096 doubles, 512..4096+512 adds, 16/128x4096x4096:nn/nt are four products; one axis alone is a "
                "square. Default: quick.",
            ),
        ] = None,
        against: Annotated[
            str | None,
            typer.Option(
                metavar="LIST",
                help="What runs beside torch and mm32, separated by commas: torch-tf32, triton-tf32x3, mm32-packed, mm32-ieee, "
                "mm32-tf32 or a kernel (naive, dot, tiled, simt, mma, direct, tensorcore). Default: as the sets say.",
            ),
        ] = None,
        saved: Annotated[
            Path | None,
            typer.Option(
                "--from", metavar="FILE", exists=True, dir_okay=False, help="Show this record; measure nothing."
            ),
        ] = None,
        plot: Annotated[
            Path | None,
            typer.Option(
                metavar="FILE", help="Draw speed under the card's roofs and error against speed: .png, .svg, .pdf."
            ),
        ] = None,
        json: Annotated[
            Path | None, typer.Option(metavar="FILE", help="Write the record as JSON; - for standard output.")
        ] = None,
        csv: Annotated[
            Path | None, typer.Option(metavar="FILE", help="Write a line for each time as CSV; - for standard output.")
        ] = None,
        markdown: Annotated[
            Path | None, typer.Option(metavar="FILE", help="Write the table as Markdown; - for standard output.")
        ] = None,
        energy: Annotated[
            bool, typer.Option("--energy", help="Count the energy of a call too: half a second and more for each time.")
        ] = False,
    ) -> None:
        """Time mm32 beside torch and others, each with its error. Needs a CUDA device, except with --from."""
        from mm32.bench import command

        try:
            command.bench(shapes, against, saved, command.Files(plot, json, csv, markdown), energy)
        except command.Refused as error:
            raise typer.BadParameter(str(error), param_hint=error.option) from error
        except command.NoDevice as error:
            print(error, file=sys.stderr)
            raise typer.Exit(2) from error

    @app.command()
    def env(json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
        """Show versions, cards, compilers, the cache, and what is missing. Include it in bug reports."""
        from json import dumps

        from mm32 import collect_env

        report = collect_env.collect()
        print(dumps(report, indent=2) if json else collect_env.text(report))

    cache = typer.Typer(help="The cache of compiled kernels on disk.", no_args_is_help=True)
    app.add_typer(cache, name="cache")

    @cache.command("path")
    def cache_path() -> None:
        """Print the cache's folder. MM32_CACHE_DIR sets another."""
        from mm32.cuda import compile as compiler

        print(compiler.cache_dir())

    @cache.command("list")
    def cache_list() -> None:
        """List the compiled kernels: those that came with mm32, then those compiled here, oldest first."""
        from mm32.cuda import compile as compiler
        from mm32.cuda import prebuilt

        came, made = prebuilt.entries(), compiler.entries()
        for origin, entries in (("came with mm32", came), ("compiled here", made)):
            for entry in entries:
                by = f"{origin}, {entry.compiler}"
                print(f"{entry.bytes:>9}  {entry.arch:<8}  {entry.kernel:<16}  {entry.constants}  ({by})")
        if came:
            print(f"{_entries(len(came))}, {sum(e.bytes for e in came)} bytes came with mm32 ({prebuilt.FOLDER})")
        print(f"{_entries(len(made))}, {sum(e.bytes for e in made)} bytes in {compiler.cache_dir()}")

    @cache.command("clear")
    def cache_clear() -> None:
        """Remove all compiled kernels. They are compiled again when they are needed."""
        from mm32.cuda import compile as compiler

        removed, kept = compiler.clear()
        print(f"removed {_entries(removed)} from {compiler.cache_dir()}")
        for path, why in kept:
            print(f"could not remove {path} ({why})", file=sys.stderr)
        if kept:
            raise typer.Exit(1)


def _write(path: Path, text: str) -> None:
    """Write a report that was asked for. Where that fails only now, as on a full disk, the exit code is 70: no file, no proof."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"mm32: {path} could not be written: {error.strerror or error}", file=sys.stderr)
        raise typer.Exit(70) from None


def _entries(count: int) -> str:
    return f"{count} entr{'y' if count == 1 else 'ies'}"


class _progress:
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


def main() -> None:
    """Entry point of the `mm32` command."""
    if typer is None:
        from mm32.install import pip_install

        print(f"mm32's command line needs: {pip_install('cli')}", file=sys.stderr)
        raise SystemExit(2)
    import signal

    # Closing the terminal or ending the job is like Ctrl-C: the candidate's processes are ended as well.
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, interrupt)
    try:
        app()
    except (KeyboardInterrupt, SystemExit) as stop:
        # Typer itself turns an interrupt into exit code 130 without a message.
        if isinstance(stop, SystemExit) and stop.code != 130:
            raise
        print("mm32: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
