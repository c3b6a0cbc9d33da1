"""`mm32 cache`: the compiled kernels on disk."""

from __future__ import annotations

import sys

import typer

app = typer.Typer(help="The cache of compiled kernels on disk.", no_args_is_help=True)


@app.command("path")
def cache_path() -> None:
    """Print the cache's folder. MM32_CACHE_DIR sets another."""
    from mm32.cuda import compile as compiler

    print(compiler.cache_dir())


@app.command("list")
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


@app.command("clear")
def cache_clear() -> None:
    """Remove all compiled kernels. They are compiled again when they are needed."""
    from mm32.cuda import compile as compiler

    removed, kept = compiler.clear()
    print(f"removed {_entries(removed)} from {compiler.cache_dir()}")
    for path, why in kept:
        print(f"could not remove {path} ({why})", file=sys.stderr)
    if kept:
        raise typer.Exit(1)


def _entries(count: int) -> str:
    return f"{count} entr{'y' if count == 1 else 'ies'}"
