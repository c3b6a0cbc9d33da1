"""The pages' tables are what the records say; a record that is older than the kernels it speaks of is named in its table."""

from __future__ import annotations

import importlib.util
import json
import math
import re
from pathlib import Path
from types import ModuleType

import pytest

from mm32.bench import record
from mm32.plan import KERNELS

ROOT = Path(__file__).parent.parent
RECORDS = sorted((ROOT / "benchmarks" / "results").glob("*/*.json"))


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tables", ROOT / "benchmarks" / "tables.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_agree_with_the_records(tables: ModuleType) -> None:
    marked = 0
    for name in tables.PAGES:
        page = (ROOT / name).read_text()
        marked += len(tables.MARKED.findall(page))
        assert page == tables.filled(page), f"{name} differs from its records: make tables"
    assert marked >= 4


def test_a_changed_record_changes_its_table(tables: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tables.load("main")
    made["rows"][0]["results"]["mm32"]["seconds"] *= 2
    monkeypatch.setattr(tables, "load", lambda name: made)
    page = (ROOT / "README.md").read_text()
    assert tables.filled(page) != page


def test_a_stale_record_is_said_so(tables: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tables.load("main")
    made["kernels"]["tensorcore"] = "0" * 16
    monkeypatch.setattr(tables, "load", lambda name: made)
    assert record.stale(made)[-1] == "tensorcore"
    assert "Measured before the latest change to" in tables.main_table()


def test_an_unknown_table_is_refused(tables: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"no table 'other': there are main, "):
        tables.filled("<!-- table: other -->\n<!-- end table -->")


def test_the_planners_choices_are_summed_up(
    tables: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    assert "No record of this set" in tables.auto_table()
    made = tables.record.read(ROOT / "benchmarks" / "results" / "nvidia-h200" / "main.json") | {"name": "auto"}
    rows = made["rows"] = [made["rows"][0] | {"case": f"{i}x2x3 nn randn"} for i in range(12)]
    for i, row in enumerate(rows):
        ours = row["results"]["mm32"] | {"speedup": 2.0 ** (i - 4)}
        # Twice as fast as mm32's choice in the first three, then a tenth slower.
        simt = row["results"]["simt"] | {"seconds": ours["seconds"] * (0.5 if i < 3 else 1.1), "speedup": 0.25}
        row["results"] = row["results"] | {"mm32": ours, "simt": simt}
    record.write(tmp_path / tables.CARD / "auto.json", made)
    page = tables.auto_table().splitlines()
    assert page[0].startswith(
        "12 products: geometric mean of mm32 : torch **2.83**, 8 of them at least as fast as torch; in 3 "
    )
    table = [line for line in page if line.startswith("| ") and "randn" in line]
    assert [line.split(" |")[0] for line in table] == [f"| {i} × 2 × 3 nn randn" for i in range(10)]
    assert "**0.06**" in table[0]
    assert "| 0.25 | – |" in table[0]


@pytest.mark.parametrize("path", RECORDS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_record_is_whole(path: Path) -> None:
    made = record.read(path)
    assert {"card", "driver", "torch", "cuda", "compiler"} <= made["environment"].keys()
    assert set(made["kernels"]) <= set(KERNELS)
    assert made["rows"]
    for row in made["rows"]:
        assert re.fullmatch(r"randn|rand", row["distribution"])
        for name, result in row["results"].items():
            assert 0 < result["low"] <= result["seconds"] <= result["high"], (row["case"], name)
            # No time stands without a finite error beside it.
            assert math.isfinite(result["error"]), (row["case"], name)
            assert math.isfinite(result["gauge"]), (row["case"], name)
    if old := record.stale(made):
        print(f"{path.name} is older than {', '.join(old)}")


def test_other_schemas_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"schema": 0}))
    with pytest.raises(ValueError, match="record schema 0, this version reads 1"):
        record.read(path)
