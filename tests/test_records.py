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
