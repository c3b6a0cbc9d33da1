"""The commands of `mm32` together, and those that are too small for a file of their own. An error that a command ends with names
`mm32 errors`, if its message has an entry there."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from . import cache, products, verify


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            from mm32 import error_page

            # One with a cause is an error of mm32's; others are of the command line alone, and not on the page.
            if error.__cause__ is not None and (said := error_page.pointer(str(error.__cause__))):
                error.message += f"\n\n{said}"
            raise


app = typer.Typer(
    name="mm32",
    cls=_Commands,
    help="fp32 matmul for PyTorch on NVIDIA GPUs, and a test of whether a kernel is right and faster.",
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


app.command(epilog=verify.EXIT_CODES.replace("\n ", "\n- ").replace("\n", "\n\n"))(verify.verify)
app.command()(verify.demo)
for command in (products.export, products.explain, products.bench):
    app.command()(command)


@app.command()
def env(json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """Show versions, cards, compilers, the cache, and what is missing. Include it in bug reports."""
    from json import dumps

    from mm32 import collect_env

    report = collect_env.collect()
    print(dumps(report, indent=2) if json else collect_env.text(report))


@app.command()
def errors(
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT]...",
            show_default=False,
            help="An error's message, a part of it, or a heading; - reads a program's output from standard input.",
        ),
    ] = None,
) -> None:
    """Say what an error of mm32 means and what to do. Without TEXT: the headings of all of them."""
    from mm32 import error_page

    try:
        known = error_page.entries()
    except OSError as error:
        print(f"{error_page.NAME} is not there ({error}): install mm32 again", file=sys.stderr)
        raise typer.Exit(1) from error
    asked = " ".join(text or [])
    if text == ["-"]:
        asked = sys.stdin.read()
    if not asked.strip() or asked.strip("'\" ").upper() in error_page.PLACEHOLDERS:
        for heading, count in error_page.headings(known).items():
            print(f"{count:>4}  {heading}")
        print("\nmm32 errors 'PART OF A MESSAGE', or mm32 errors 'HEADING'")
        return
    found = error_page.find(asked, known)
    if not found:
        print(error_page.nothing(asked), file=sys.stderr)
        raise typer.Exit(1)
    print("\n\n".join(entry.shown() for entry in found))


app.add_typer(cache.app, name="cache")
