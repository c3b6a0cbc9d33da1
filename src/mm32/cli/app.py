"""The commands of `mm32` together, and those that are too small for a file of their own."""

from __future__ import annotations

from typing import Annotated

import typer

from . import cache, products, verify

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


app.add_typer(cache.app, name="cache")
