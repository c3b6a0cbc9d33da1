"""Tables with a line for each row of one record: of products, and of what was measured of them in another way."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mm32.bench import families as of_data
from mm32.bench import summary
from mm32.plan import KERNELS
from mm32.verify import Verdict

from .columns import (
    CASE,
    LAYOUT,
    PRODUCT,
    Cell,
    Load,
    Row,
    Source,
    error,
    grid,
    kernel,
    markdown,
    seconds,
    short,
    size,
    speedup,
    time,
)


def table(
    load: Load, source: Source, name: str, columns: Iterable[tuple[str, Cell]], rows: Iterable[Row] | None = None
) -> str:
    """Return the Markdown of a table of record `name`, and where that is. Its lines are of `rows`, by default the record's."""
    return grid(columns, load(name)["rows"] if rows is None else rows) + source(name)


def of(name: str, columns: list[tuple[str, Cell]]) -> Callable[[Load, Source], str]:
    """Return what makes a table of record `name` with a line for each of its rows, and nothing else."""
    return lambda load, source: table(load, source, name, columns)


main = of(
    "main",
    [
        *PRODUCT,
        ("torch fp32", seconds("torch")),
        ("mm32", seconds("mm32")),
        ("mm32 : torch (95 %)", speedup("mm32")),
        ("torch TF32", seconds("torch-tf32")),
        ("error torch", error("torch")),
        ("error mm32", error("mm32")),
        ("error TF32", error("torch-tf32")),
    ],
)


shapes = of(
    "shapes",
    [
        ("M × K × N", size),
        ("torch fp32", seconds("torch")),
        ("mm32", seconds("mm32")),
        ("kernel", kernel),
        ("mm32 : torch (95 %)", speedup("mm32")),
        ("torch TF32", seconds("torch-tf32")),
        ("error torch", error("torch")),
        ("error mm32", error("mm32")),
    ],
)


def _tf32_over_torch(row: Row) -> str:
    torchs, ours = (row["results"][name]["seconds"] for name in ("torch-tf32", "mm32-tf32"))
    return f"{torchs / ours:.2f}"


tf32 = of(
    "main",
    [
        *PRODUCT,
        ("torch TF32", seconds("torch-tf32")),
        ("mm32 `tf32`", seconds("mm32-tf32")),
        ("mm32 : torch TF32", _tf32_over_torch),
        ("error torch TF32", error("torch-tf32")),
        ("error mm32 `tf32`", error("mm32-tf32")),
    ],
)


packed = of(
    "main",
    [
        *PRODUCT,
        ("torch fp32", seconds("torch")),
        ("mm32", seconds("mm32")),
        ("mm32, B packed beforehand", seconds("mm32-packed")),
        ("packed : torch (95 %)", speedup("mm32-packed")),
        ("error mm32", error("mm32")),
        ("error packed", error("mm32-packed")),
    ],
)


def _both_errors(name: str) -> Cell:
    return lambda row: f"{row['results'][name]['error']:.1e} / {row['results'][name]['gauge']:.1f}"


errors = of(
    "main",
    [
        *PRODUCT,
        ("torch fp32", _both_errors("torch")),
        ('mm32 "fp32"', _both_errors("mm32")),
        ("mm32 simt", _both_errors("simt")),
        ("torch TF32", _both_errors("torch-tf32")),
        ('mm32 "tf32"', _both_errors("mm32-tf32")),
    ],
)


def ladder(load: Load, source: Source) -> str:
    """Return the table of the ladder: a line for each rung, slowest first; the fastest time in each layout is bold."""
    rows = load("ladder")["rows"]

    def in_layout(row: Row) -> tuple[str, Cell]:
        fastest = min(r["seconds"] for r in row["results"].values())

        def cell(rung: Row) -> str:
            seconds = row["results"][rung["name"]]["seconds"]
            return f"**{time(seconds)}**" if seconds == fastest else time(seconds)

        return LAYOUT[row["layout"]], cell

    rungs = []
    for name in rows[0]["results"]:
        results = [row["results"][name] for row in rows]
        mean = summary.geometric_mean([r["speedup"] for r in results])
        rungs.append({"name": name, "speed": mean, "error": max(r["error"] for r in results)})
    columns = [
        ("rung", lambda rung: f"`{rung['name']}`" if rung["name"] != "torch" else "torch fp32"),
        *map(in_layout, rows),
        ("speed, torch = 1", lambda rung: f"{rung['speed']:.3g}"),
        ("largest error", lambda rung: f"{rung['error']:.1e}"),
    ]
    rungs.sort(key=lambda rung: rung["speed"])
    return grid(columns, rungs) + _without(rows[0]["results"]) + source("ladder")


def _without(results: Iterable[str]) -> str:
    """Return what stands under a table: which kernels its record lacks."""
    missing = [f"`{kernel}`" for kernel in KERNELS if kernel not in results]
    return f"\nNot measured: {', '.join(missing)}.\n" if missing else ""


ieee = of(
    "ieee",
    [
        CASE,
        ("torch fp32", short("torch")),
        ("simt", short("simt")),
        ("simt : torch (95 %)", speedup("simt")),
        ("error torch", error("torch")),
        ("error simt", error("simt")),
    ],
)


def host(load: Load, source: Source) -> str:
    (row,) = load("host")["rows"]
    one = row["results"]["launch"]["seconds"]
    names = {"torch": "torch.matmul", "enabled": "torch.matmul, mm32 on", "launch": "one launch alone"}

    def micro(seconds: float) -> str:
        return f"{seconds * 1e6:.1f} µs"

    return table(
        load,
        source,
        "host",
        [
            ("call", lambda r: r["name"]),
            ("host time", lambda r: micro(r["seconds"])),
            ("launches", lambda r: str(r["launches"])),
            ("beside them", lambda r: micro(r["seconds"] - r["launches"] * one)),
        ],
        ({"launches": 1, "name": names.get(name, f"`{name}`"), **r} for name, r in row["results"].items()),
    )


def exports(load: Load, source: Source) -> str:
    rows = load("exports")["rows"]

    def verdict(name: str) -> Cell:
        return lambda row: (
            Verdict[row["results"][name]["verdict"]].value.lower() if name in row["results"] else "not reached"
        )

    problem = ("problem", lambda row: f"matmul_{row['case']}")
    names = [name for name in KERNELS if any(name in row["results"] for row in rows)]
    columns = [problem, *((name, verdict(name)) for name in names)]
    return grid(columns, rows) + _without(names) + source("exports")


def families(load: Load, source: Source) -> str:
    """Return tables of the families of the record's first shape, kind by kind, then of those of each further shape."""
    first, *further = of_data.by_shape(load("families")["rows"]).values()

    def over_torch(row: Row) -> str:
        return f"{row['results']['torch-tf32']['speedup']:.2f}"

    def errors(name: str) -> Cell:
        return lambda row: of_data.both_errors(row["results"][name])

    columns = (
        ("family", lambda row: f"`{row['family']}`"),
        ("what", lambda row: row["what"]),
        ("torch", seconds("torch")),
        ("mm32", seconds("mm32")),
        ("mm32 : torch (95 %)", speedup("mm32")),
        ("TF32 : torch", over_torch),
        ("error torch", errors("torch")),
        ("error mm32", errors("mm32")),
        ("computed by", of_data.computed_by),
    )
    parts = [f"## {families_shape(first)}\n"]
    for kind, what in of_data.KINDS.items():
        if of_kind := [row for row in first if row["kind"] == kind]:
            parts.append(f"### {what}\n\n{grid(columns, of_kind)}")
    for rows in further:
        parts.append(f"## {families_shape(rows)}\n\n{grid([c for c in columns if c[0] != 'what'], rows)}")
    return "\n".join(parts) + source("families")


def families_shapes(load: Load, source: Source) -> str:
    """Return the table of shapes: the speed over their families, and the families whose errors are larger than promised."""
    heads = ("M × K × N", "families", "mm32 : torch, geometric mean", "lowest", "TF32 : torch, geometric mean")
    shapes = of_data.by_shape(load("families")["rows"])

    def cells(shape: str, rows: list[Row]) -> list[str]:
        means = of_data.geometric_means(rows)[shape]
        (worst,) = summary.worst(rows, count=1)
        lowest = f"{worst['results']['mm32']['speedup']:.2f} (`{worst['family']}`)"
        broken = ", ".join(f"`{row['family']}`" for row in rows if not row["keeps"])
        return [
            families_shape(rows),
            str(len(rows)),
            f"**{means['mm32']:.2f}**",
            lowest,
            f"{means['torch-tf32']:.2f}",
            broken or "none",
        ]

    lines = [cells(shape, rows) for shape, rows in shapes.items()]
    return markdown((*heads, "the promise is broken by"), lines) + source("families")


def families_shape(rows: list[Row]) -> str:
    """Return the shape that these rows have in common, as a heading."""
    return of_data.shape(rows[0]).replace("x", " × ").replace(" batch", ", batch")


def auto(load: Load, source: Source) -> str:
    """Return a summary of the planner's choices over the set "auto", and a table of its ten lowest speedups."""
    rows = [row for row in load("auto")["rows"] if "mm32" in row["results"]]
    speedups = [row["results"]["mm32"]["speedup"] for row in rows]
    ahead = sum(s >= 1 for s in speedups)
    poor = sum(ratio > 1.1 for _, ratio in map(summary.choice, rows))

    def over_torch(name: str) -> Cell:
        return lambda row: f"{row['results'][name]['speedup']:.2f}" if name in row["results"] else "–"

    lowest = table(
        load,
        source,
        "auto",
        [
            CASE,
            ("kernel", kernel),
            ("torch fp32", short("torch")),
            ("mm32", short("mm32")),
            ("mm32 : torch (95 %)", speedup("mm32")),
            ("simt : torch", over_torch("simt")),
            ("tensorcore : torch", over_torch("tensorcore")),
            ("error torch", error("torch")),
            ("error mm32", error("mm32")),
        ],
        summary.worst(rows),
    )
    return (
        f"{len(rows)} products: geometric mean of mm32 : torch **{summary.geometric_mean(speedups):.2f}**, {ahead} of them at "
        f"least as fast as torch; in {poor} a kernel that was not chosen is faster by more than a tenth. The ten lowest:\n\n"
        + lowest
    )
