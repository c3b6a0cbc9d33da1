"""Tables made from several records, or from none: those of README.md, of the site's first page, and the comparison."""

from __future__ import annotations

from pathlib import Path

from mm32 import gemm
from mm32 import plan as planning
from mm32.bench import record
from mm32.plan.card import CARDS

from .columns import Cell, Load, Row, Source, grid, product, short, size, speedup
from .pictures import NAMES, span

RESULTS = Path(__file__).parents[1] / "results"
SQUARES = (512, 1024, 4096, 16384)  # sides of the squares in the front table
LARGE = (4096, 4096, 4096)  # the product in the table of cards
# Implementations in the comparison besides those of the pictures.
FURTHER = {"mm32-tf32": 'mm32, `precision="tf32"`', "simt": "mm32's `simt`, fp32 multiply-adds"}


def front(load: Load, source: Source) -> str:
    """Return the front table: a product, squares and programs, including those that gain nothing."""
    main, shapes, models = load("main"), load("shapes"), load("models")
    first = main["rows"][0]
    rows = [first | {"what": f"{size(first)}, {product(first)}"}]
    squares = {row["m"]: row for row in shapes["rows"] if row["m"] == row["n"] == row["k"]}
    rows += [squares[side] | {"what": size(squares[side])} for side in SQUARES if side in squares]
    rows += [row | {"what": row["case"]} for row in models["rows"]]

    def step(name: str) -> Cell:
        return lambda row: "fails" if "failed" in row["results"][name] else short(name)(row)

    def first_error(name: str) -> Cell:
        """Return a cell for an error; of a program, the error of its first quantity."""

        def cell(row: Row) -> str:
            r = row["results"][name]
            if "failed" in r:
                return "–"
            return f"{r['error'] if 'error' in r else next(iter(r['errors'].values())):.1e}"

        return cell

    columns = [
        ("product or program", lambda row: row["what"]),
        ("torch fp32", step("torch")),
        ("mm32", step("mm32")),
        ("mm32 : torch (95 %)", speedup("mm32")),
        ("error torch", first_error("torch")),
        ("error mm32", first_error("mm32")),
    ]
    return grid(columns, rows) + source("main", "shapes", "models")


def comparison(load: Load, source: Source) -> str:
    """Return the table of speed, error and energy of the implementations in the record "rivals"."""
    rows = load("rivals")["rows"]
    shapes = ", ".join(sorted({size(row) for row in rows}))
    data = " and ".join(sorted({f"`torch.{row['distribution']}`" for row in rows}))
    names = {name: title for name, title in (NAMES | FURTHER).items() if all(name in row["results"] for row in rows)}
    lines = []
    for name, title in names.items():
        found = [row["results"][name] for row in rows]
        lines.append(
            {
                "title": title,
                "speed": span([r["speedup"] for r in found], "{:.2f}".format),
                "error": span([r["error"] for r in found], "{:.1e}".format),
                "energy": span([r["joules"] for r in found], "{:.2f}".format)
                if all("joules" in r for r in found)
                else "",
            }
        )
    columns: list[tuple[str, Cell]] = [
        ("measured here", lambda line: line["title"]),
        ("speed, torch fp32 = 1", lambda line: line["speed"]),
        ("error ‖C − C64‖ / ‖C64‖", lambda line: line["error"]),
    ]
    if any(line["energy"] for line in lines):
        columns.append(("energy of a product, J", lambda line: line["energy"]))
    return (
        f"{shapes}, {len({row['layout'] for row in rows})} layouts, {data}:\n\n"
        + grid(columns, lines)
        + source("rivals")
    )


def hardware(load: Load, source: Source) -> str:
    """Return the table of the planner's cards: which kernel a large product gets on each, and whether the card has been timed."""
    timed = {record.read(path)["environment"]["card"] for path in RESULTS.glob("*/main.json")}

    def kernel(row: Row) -> str:
        return f"`{planning.plan(gemm.from_layout('nn', *LARGE), row['card'], torch='fp32').kernel}`"

    def state(row: Row) -> str:
        card = row["card"]
        if card.fitted:
            return "**measured**"
        same = [name for name, (other, _) in CARDS.items() if other.fitted and other.arch == card.arch]
        if same and card.name in timed:
            return f"**measured**; the planner's estimates are the {same[0]}'s"
        return f"the {same[0]}'s code, not timed" if same else f"compiled only ({card.arch})"

    columns: list[tuple[str, Cell]] = [
        ("card", lambda row: row["name"]),
        ("capability", lambda row: "{}.{}".format(*row["card"].capability)),
        ("kernel", kernel),
        ("state", state),
    ]
    rows = [{"name": name, "card": card} for name, (card, _) in CARDS.items()]

    def order(row: Row) -> tuple[object, ...]:
        card = row["card"]
        return not card.fitted, card.name not in timed, card.capability

    return grid(columns, sorted(rows, key=order))
