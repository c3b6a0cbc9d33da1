"""`mm32 export`, `mm32 explain` and `mm32 bench`: products by their sizes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from mm32 import options
from mm32.files import unwritable


def _names(of: Any, *left_out: str) -> str:
    """The values of a type of mm32.options, in words."""
    *first, last = (name for name in get_args(of) if name not in left_out)
    return f"{', '.join(first)} or {last}"


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
Activation = Annotated[
    str | None,
    typer.Option(metavar="NAME", help=f"Apply {_names(options.Activation)} to the result."),
]
Precision = Annotated[
    str, typer.Option(metavar="NAME", help=f"The error that is allowed: {_names(options.Precision)}.")
]
Kernel = Annotated[str, typer.Option(metavar="NAME", help=f"{_names(options.Kernel)}.")]


def _products(product: str | None, default: str = "nn") -> list[tuple[str, int, int, int]]:
    """Layout, M, N and K of each, as `gemm.from_layout` takes them. `default`: the layout where none is given."""
    from mm32 import sizes

    if product is None:
        raise typer.BadParameter(f"give the product's sizes and layout, such as {sizes.EXAMPLE}")
    return [(asked.layout or default, asked.m, asked.n, asked.k) for asked in sizes.parse(product)]


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
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE if it exists.")] = False,
) -> None:
    """Write one self-contained script: class ModelNew with the CUDA source inside, built by load_inline."""
    from mm32.cuda import launch
    from mm32.export import export as script
    from mm32.export import write

    device, present = launch.planning_device()
    given = {"bias": bias, "activation": activation, "precision": precision, "kernel": kernel, "linear": linear}
    try:
        several = _products(product, "nt" if linear else "nn")
        if len(several) > 1:
            raise typer.BadParameter(f"{product} has {len(several)} products; a file is written for one")
        layout, m, n, k = several[0]
        text = script(layout, m=m, n=n, k=k, device=device, **given)  # type: ignore[arg-type]
        if output is None or str(output) == "-":
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


def explain(
    product: Product = None,
    bias: Bias = False,
    activation: Activation = None,
    precision: Precision = "fp32",
    kernel: Kernel = "auto",
) -> None:
    """Say which kernel would compute a product, how, and why. Nothing is computed."""
    from mm32 import gemm, plan, settings
    from mm32.cuda import launch

    device, present = launch.planning_device()
    try:
        asked = [
            gemm.from_layout(*one, bias=bias, activation=activation, precision=precision) for one in _products(product)
        ]
        limit = settings.read_limit()
        planned = [plan.plan(one, device, kernel, torch="fp32", limit=limit) for one in asked]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    print("\n\n".join(one.explain() for one in planned))
    if not present:
        print(f"no CUDA device here: planned for an {device.name}")
    if off := settings.disabled():
        print(f"{off}: mm32.matmul leaves this product to torch")


def bench(
    lists: Annotated[
        list[str] | None,
        typer.Argument(metavar="[LIST]...", show_default=False, help="As --shapes: either or both."),
    ] = None,
    shapes: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Sets (quick, main, rivals, shapes, small, random, ladder, ieee, auto) and sizes MxKxN[:layout][:distribution], "
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
            f"mm32-tf32 or a kernel ({_names(options.Kernel, 'auto')}). Default: as the sets say.",
        ),
    ] = None,
    saved: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", exists=True, dir_okay=False, help="Show this record; measure nothing."),
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
        Path | None, typer.Option(metavar="FILE", help="Write the times as CSV, one a line; - for standard output.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the table as Markdown; - for standard output.")
    ] = None,
    energy: Annotated[
        bool, typer.Option("--energy", help="Also measure the energy of a call: half a second or more for each time.")
    ] = False,
) -> None:
    """Time mm32 beside torch and others, each with its error. Needs a CUDA device, except with --from."""
    from mm32.bench import command

    asked = ",".join([*([shapes] if shapes else []), *lists]) if lists else shapes
    try:
        command.bench(asked, against, saved, command.Files(plot, json, csv, markdown), energy)
    except command.Refused as error:
        raise typer.BadParameter(str(error), param_hint=error.option) from error.__cause__
    except command.NoDevice as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from error
