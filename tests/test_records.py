"""The pages' tables agree with the records, and a table says so if its record is older than the kernels that it measured."""

from __future__ import annotations

import importlib.util
import json
import math
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

from mm32.bench import families, models, record, suite
from mm32.cuda.launch import TIERS
from mm32.plan import EMULATED_KERNELS, KERNELS
from mm32.plan.card import CARDS
from support.records import assert_verdicts_are_whole

ROOT = Path(__file__).parent.parent
RECORDS = sorted((ROOT / "benchmarks" / "results").glob("*/*.json"))
FAR_SLOWER = 0.75  # a product below this share of torch's speed is far slower
# Data of small products that kernel `direct` computes again by multiply-adds (docs/kernels.md, "What falls short").
KNOWN_SLOW = ("subnormal",)
# Data of small products whose errors may be larger than torch's (docs/numerics.md, "The promise").
KNOWN_LARGER = ("subnormal", "1%")


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
        assert page == tables.filled(page, tables.docs_from(name)), f"{name} differs from its records: make tables"
    assert marked >= 4
    assert tables.MARKED.findall((ROOT / "README.md").read_text())


def test_pictures_agree_with_the_records(tables: ModuleType) -> None:
    made = tables.drawn()
    assert len(made) == 2 * (len(tables.PICTURES) + len(tables.DIAGRAMS))
    for path, text in made.items():
        assert path.read_text() == text, f"{path.name} differs from its record: make tables"
    assert set((ROOT / "docs" / "pictures").iterdir()) == set(made), "a picture that nothing draws"
    pages = "".join((ROOT / name).read_text() for name in tables.PAGES)
    for path in made:
        assert f'pictures/{path.name}"' in pages, "a picture that no page shows"


def test_a_picture_says_where_and_when_and_what(tables: ModuleType) -> None:
    for name, (of, draw, _) in tables.PICTURES.items():
        made = tables.load(of)
        for theme in tables.THEMES:
            text = draw(made, theme)
            beside = "torch fp32" if name == "scaling" else "torch TF32"
            for said in (made["environment"]["card"], made["environment"]["torch"], made["made"][:10], beside):
                assert said in text, (name, said)
            assert "C64" in text or "error" in text, "no speed without its error"
            fresh = draw(made | {"kernels": {k: record.kernel_hash(k) for k in made["kernels"]}}, theme)
            assert "Measured before" not in fresh
            assert "Measured before the latest change to simt." in draw(made | {"kernels": {"simt": "0"}}, theme)


def test_a_peer_that_a_record_has_is_in_its_picture(tables: ModuleType) -> None:
    made = tables.load("rivals")
    rows = made["rows"]
    draw = tables.PICTURES["speed-error"][1]
    without = {"triton-tf32x3"}
    bare = [row | {"results": {n: r for n, r in row["results"].items() if n not in without}} for row in rows]
    assert "tf32x3" not in draw(made | {"rows": bare}, tables.THEMES[0])
    triton = {"speedup": 2.5, "error": 3e-7, "seconds": 1e-3}
    more = [row | {"results": row["results"] | {"triton-tf32x3": triton}} for row in bare]
    text = draw(made | {"rows": more}, tables.THEMES[0])
    assert ">Triton tf32x3<" in text
    assert ">speed 2.50, error 3.0e-07<" in text


def test_a_changed_record_changes_its_table(tables: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tables.load("main")
    made["rows"][0]["results"]["mm32"]["seconds"] *= 2
    load = tables.load
    monkeypatch.setattr(tables, "load", lambda name: made if name == "main" else load(name))
    page = (ROOT / "docs" / "results.md").read_text()
    assert tables.filled(page) != page
    monkeypatch.setattr(tables, "load", load)
    before, made = tables.drawn(), tables.load("rivals")
    made["rows"][0]["results"]["mm32"]["speedup"] *= 2
    monkeypatch.setattr(tables, "load", lambda name: made if name == "rivals" else load(name))
    differing = {path.name for path, text in tables.drawn().items() if text != before[path]}
    assert differing == {"speed-error-light.svg", "speed-error-dark.svg"}


def test_a_stale_record_is_said_so(tables: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tables.load("main")
    made["kernels"]["tensorcore"] = "0" * 16
    monkeypatch.setattr(tables, "load", lambda name: made)
    assert record.stale(made)[-1] == "tensorcore"
    assert "Measured before the latest change to" in tables.rendered("main")


def test_a_record_of_verdicts_is_as_old_as_verify(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(record, "environment", dict)
    monkeypatch.setattr(record, "VERIFY", tmp_path)
    (tmp_path / "judge.py").write_text("BOUND = 4\n")
    made = record.make("corpus", [])
    assert record.stale(made) == []
    (tmp_path / "judge.py").write_text("BOUND = 8\n")
    assert record.stale(made) == ["verify"]
    assert record.stale({key: value for key, value in made.items() if key != "verify"}) == ["verify"]
    assert "verify" not in record.make("main", [])


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_an_old_record_names_a_script_that_makes_it(path: Path, tables: ModuleType) -> None:
    made = record.read(path)
    if made["kernels"] or made["name"] in record.VERDICTS:  # other records never become old
        named = tables.SCRIPTS.get(path.stem)
        assert (ROOT / "benchmarks" / named.split()[0]).is_file() if named else path.stem in {*suite.SETS, "host"}


def cells(table: str) -> list[list[str]]:
    """Return the rows of a Markdown table, its head first."""
    lines = [line for line in table.splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_ladder_shows_its_winner(tables: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tables.load("ladder")
    for row in made["rows"]:
        row["results"]["dot"] |= {"seconds": 1e-9, "speedup": 1e6, "error": 0.5}
    monkeypatch.setattr(tables, "load", lambda name: made)
    head, *rungs = cells(tables.rendered("ladder"))
    assert head == [
        "rung",
        *(tables.products.LAYOUT[row["layout"]] for row in made["rows"]),
        "speed, torch = 1",
        "largest error",
    ]
    assert {rung[0] for rung in rungs} == {
        "torch fp32",
        *(f"`{n}`" for n in made["rows"][0]["results"] if n != "torch"),
    }
    assert rungs[-1] == ["`dot`", *["**0.000 ms**"] * 4, "1e+06", "5.0e-01"]
    assert sum(cell.startswith("**") for rung in rungs for cell in rung) == 4, "one winner a layout"
    assert all(re.fullmatch(r"\**[\d.]+ ms\**", cell) for rung in rungs for cell in rung[1:5]), "one figure a cell"


@pytest.mark.parametrize("name", ["ladder", "exports"])
def test_kernels_that_a_record_lacks_are_named(name: str, tables: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tables.load(name)
    for row in made["rows"]:
        row["results"] = dict.fromkeys([*KERNELS, "torch"], row["results"]["simt"])
    monkeypatch.setattr(tables, "load", lambda name: made)
    assert "Not measured" not in tables.rendered(name)
    for row in made["rows"]:
        del row["results"]["naive"], row["results"]["direct"]
    assert "\nNot measured: `naive`, `direct`.\n" in tables.rendered(name)


def test_products_at_random_that_are_lost_are_listed(tables: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are listed lowest first, with their errors, and so is what could not be measured."""
    made = tables.load("random")
    monkeypatch.setattr(tables, "load", lambda name: made)
    measured = [row for row in made["rows"] if row["results"]][:20]
    for row in measured:
        row["results"]["mm32"] |= {"speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1}
    made["rows"] = measured
    text = tables.rendered("random")
    assert '"Below 0.95" counts the products whose whole 95 % interval is below that; there is none.' in text
    assert "Not measured" not in text
    for row, speedup in zip(measured, (0.9, 0.5, 0.7), strict=False):
        row["results"]["mm32"] |= {"speedup": speedup, "speedup_low": speedup - 0.1, "speedup_high": speedup + 0.04}
    measured[3]["results"]["mm32"] |= {"speedup": 0.9, "speedup_low": 0.8, "speedup_high": 0.96}
    made["rows"] = [
        *measured,
        measured[0] | {"results": {}, "unavailable": {"torch": "too large", "mm32": "too large"}},
    ]
    text = tables.rendered("random")
    listed = cells(text.partition("lowest first:")[2])[1:]
    assert [row[0] for row in listed] == [measured[i]["case"].replace("x", " × ", 2) for i in (1, 2, 0)]
    assert [row[4] for row in listed] == ["**0.50** (0.40–0.54)", "**0.70** (0.60–0.74)", "**0.90** (0.80–0.94)"]
    assert all(re.fullmatch(r"\d\.\de-\d\d", error) for row in listed for error in row[5:])
    assert "\nNot measured: 1 of the 21 (too large).\n" in text


def test_the_front_table_has_the_rows_that_lose(tables: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    load = tables.load
    made = load("models")
    made["rows"][0]["results"]["mm32"] |= {"speedup": 0.5, "speedup_low": 0.4, "speedup_high": 0.6}
    monkeypatch.setattr(tables, "load", lambda name: made if name == "models" else load(name))
    _, *rows = cells(tables.rendered("front"))
    assert len(rows) == 1 + len(tables.overviews.SQUARES) + len(made["rows"])
    assert rows[5][3] == "**0.50** (0.40–0.60)"
    for row in rows:
        assert all(re.fullmatch(r"\d\.\de-\d\d", error) for error in row[4:]), "no time without its error"


def test_the_table_of_cards_says_what_nobody_has_timed(tables: ModuleType) -> None:
    _, *rows = cells(tables.rendered("hardware"))
    assert [row[0] for row in rows if row[3] == "**measured**"] == ["H200"]
    assert {row[0] for row in rows} == set(CARDS)
    by_name = {row[0]: row for row in rows}
    assert by_name["H100 SXM"][2:] == ["`tensorcore`", "**measured**; the planner's estimates are the H200's"]
    assert by_name["H100 PCIe"][2:] == ["`tensorcore`", "the H200's code, not timed"]
    assert by_name["A100"][1:] == ["8.0", "`mma`", "compiled only (sm_80)"]


def test_another_cards_record_is_shown_where_it_is_newer_than_the_kernels(
    tables: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = tables.load("main")
    fresh = made | {"kernels": {kernel: record.kernel_hash(kernel) for kernel in made["kernels"]}}
    old = made | {"kernels": {"simt": "0"}}
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    own, other = tmp_path / tables.CARD / "main.json", tmp_path / "another" / "main.json"
    for folder in (own.parent, other.parent):
        folder.mkdir()

    later = {"made": "2030-01-01 00:00 UTC"}

    def shown(ours: dict | None, theirs: dict) -> Path:
        own.unlink(missing_ok=True)
        if ours is not None:
            record.write(own, ours)
        record.write(other, theirs)
        return tables.path_of("main")

    assert shown(old, fresh) == other
    assert shown(fresh, fresh) == shown(old, old) == own
    assert shown(old, old | later) == other, "the later of two that are older than the kernels"
    assert shown(old | later, old) == own
    assert shown(fresh, fresh | later) == own
    assert shown(old | later, fresh) == other
    assert shown(old, fresh | later | {"rows": fresh["rows"][1:]}) == own, "fewer rows"
    assert shown(None, old) == other
    assert tables.written("main") == "benchmarks/results/another/main.json"


def test_an_unknown_table_is_refused(tables: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"no table 'other': there are front, "):
        tables.filled("<!-- table: other -->\n<!-- end table -->")


def test_the_planners_choices_are_summed_up(
    tables: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    made = tables.record.read(ROOT / "benchmarks" / "results" / "nvidia-h200" / "main.json") | {"name": "auto"}
    rows = made["rows"] = [made["rows"][0] | {"case": f"{i}x2x3 nn randn"} for i in range(12)]
    for i, row in enumerate(rows):
        ours = row["results"]["mm32"] | {"speedup": 2.0 ** (i - 4)}
        # simt is twice as fast as mm32's choice in the first three products, and a tenth slower in the others.
        simt = row["results"]["simt"] | {"seconds": ours["seconds"] * (0.5 if i < 3 else 1.1), "speedup": 0.25}
        row["results"] = row["results"] | {"mm32": ours, "simt": simt}
    record.write(tmp_path / tables.CARD / "auto.json", made)
    page = tables.rendered("auto").splitlines()
    assert page[0].startswith(
        "12 products: geometric mean of mm32 : torch **2.83**, 8 of them at least as fast as torch; in 3 "
    )
    table = [line for line in page if line.startswith("| ") and "randn" in line]
    assert [line.split(" |")[0] for line in table] == [f"| {i} × 2 × 3 nn randn" for i in range(10)]
    assert "**0.06**" in table[0]
    assert "| 0.25 | – |" in table[0]


@pytest.mark.parametrize("path", RECORDS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_no_product_of_the_present_kernels_is_far_slower_than_torchs(path: Path) -> None:
    """A record is long, so one product of 400 that takes eight times as long would easily be overlooked."""
    made = record.read(path)
    if record.stale(made):
        pytest.skip("of older kernels")
    products = (row for row in made["rows"] if {"mm32", "torch"} <= row.get("results", {}).keys() and "m" in row)
    found = {row["case"]: row["results"]["torch"]["seconds"] / row["results"]["mm32"]["seconds"] for row in products}
    slow = {case: ratio for case, ratio in found.items() if ratio < FAR_SLOWER}
    assert {case for case in slow if not case.endswith(KNOWN_SLOW)} == set()
    assert all(ratio > 0.3 for ratio in slow.values())


@pytest.mark.parametrize(
    "path", sorted((ROOT / "benchmarks/results").glob("*/families.json")), ids=lambda p: p.parent.name
)
def test_the_promise_is_kept_but_where_the_docs_say(path: Path) -> None:
    made = record.read(path)
    if record.stale(made):
        pytest.skip("of older kernels")
    broken = {row["case"]: row["m"] * row["k"] * row["n"] for row in made["rows"] if not row["keeps"]}
    assert {case for case in broken if not case.endswith(KNOWN_LARGER)} == set()
    assert all(size < 2048**3 for size in broken.values())


@pytest.mark.parametrize("path", RECORDS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_record_is_whole(path: Path) -> None:
    made = record.read(path)
    assert {"card", "driver", "torch", "cuda", "compiler"} <= made["environment"].keys()
    assert set(made["kernels"]) <= set(KERNELS)
    assert made["rows"]
    if made["name"] in ("models", "programs"):
        assert_models_are_whole(made)
        return
    if made["name"] == "host":
        assert all(0 < result["seconds"] < 1e-3 for result in made["rows"][0]["results"].values())
        return
    if made["name"] == "exports":
        verdicts = [result["exit_code"] for row in made["rows"] for result in row["results"].values()]
        assert len(made["rows"]) == 5
        assert {name for row in made["rows"] for name in row["results"]} == set(KERNELS)
        assert len(verdicts) >= 30, "of 35 files"
        assert set(verdicts) <= {0, 1, 3, 4}, "a file that is not called the same"
        return
    if made["name"] == "families":
        assert_families_are_whole(made)
        return
    if made["name"] == "first_call":
        results = [result["seconds"] for row in made["rows"] for result in row["results"].values()]
        assert all(0 < seconds["call"] < 60 for seconds in results)
        return
    if made["name"] == "workspace":
        for row in made["rows"]:
            for result in row["results"].values():
                assert 0 < result["low"] <= result["seconds"] <= result["high"]
                assert 0 < result["error"] < 1e-5
                assert result["limit"] is None or result["workspace"] <= result["limit"]
        return
    if made["name"] in ("kernelbench", "corpus", "batch", "power"):
        assert_verdicts_are_whole(made)
        return
    if made["name"] == "parallel":
        assert made["environment"]["multicast"] == "off"
        for row in made["rows"]:
            for result in row["results"].values():
                assert 0 < result["low"] <= result["seconds"] <= result["high"]
                assert all(0 < error < 1e-5 for error in result["errors"].values()), row["case"]
        return
    if made["name"] == "scaling":
        for row in made["rows"]:
            for result in row["results"].values():
                assert 0 < result["low"] <= result["seconds"] <= result["high"]
                assert 0 < result["normwise"] < 1e-5
        return
    for row in made["rows"]:
        assert re.fullmatch(r"randn|rand", row["distribution"])
        for name, result in row["results"].items():
            assert 0 < result["low"] <= result["seconds"] <= result["high"], (row["case"], name)
            # Every time has a finite error beside it.
            assert math.isfinite(result["error"]), (row["case"], name)
            assert math.isfinite(result["gauge"]), (row["case"], name)
    if old := record.stale(made):
        print(f"{path.name} is older than {', '.join(old)}")


def assert_families_are_whole(made: dict) -> None:
    """Assert that the first shape has every family, in the order of their table, and that only TF32's errors are infinite."""
    first = next(iter(families.by_shape(made["rows"]).values()))
    assert [row["family"] for row in first] == [family.name for family in families.FAMILIES]
    for shape, means in families.geometric_means(
        made["rows"]
    ).items():  # their last digit differs between versions of Python
        assert made["geometric_means"][shape] == pytest.approx(means, rel=1e-12)
    for row in made["rows"]:
        assert tuple(row["results"]) == families.IMPLEMENTATIONS
        assert set(row["tiers"]) <= set(TIERS)
        for name, result in row["results"].items():
            assert 0 < result["low"] <= result["seconds"] <= result["high"], (row["case"], name)
            assert all(result[gauge] >= 0 for gauge in families.GAUGES), (row["case"], name)
            assert name == "torch-tf32" or all(math.isfinite(result[gauge]) for gauge in families.GAUGES), row["case"]


def assert_models_are_whole(made: dict) -> None:
    """Assert that a record of models has all results. In programs.json, whose programs are other people's, mm32 may have run none
    of the products, and each failure has its reason."""
    others = made["name"] == "programs"
    for failed in made["failed"].values() if others else ():
        assert failed["program"]
        assert failed["why"]
    for row in made["rows"]:
        assert set(row["results"]) == {"torch", "torch-tf32", "mm32"}, row["case"]
        assert others == ("program" in row) == ("library" in row)
        assert others or sum(row["results"]["mm32"]["kernels"].values()) > 0, f"mm32 ran no product of {row['case']}"
        assert set(row["results"]["mm32"]["kernels"]) <= set(made["kernels"])
        by_tensor_cores = sum(row["results"]["mm32"]["kernels"].get(kernel, 0) for kernel in EMULATED_KERNELS)
        for tier, count in models.tiers(row["results"]["mm32"]).items():
            assert tier in TIERS
            # A product in blocks counts once for each block; none of our own models has one.
            assert 0 < count <= by_tensor_cores or (others and by_tensor_cores), (row["case"], tier)
        quantities = row["results"]["torch"]["errors"].keys()
        for name, result in row["results"].items():
            if "failed" in result:
                assert name == "torch-tf32", (row["case"], name, result["failed"])
                continue
            assert 0 < result["low"] <= result["seconds"] <= result["high"], (row["case"], name)
            assert result["errors"].keys() == quantities
            assert all(math.isfinite(error) for error in result["errors"].values()), (row["case"], name)


@pytest.fixture
def models_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    """A record of a small model of products, which is run here and whose step fails under TF32."""

    def prepare(dtype: torch.dtype) -> models.Step:
        a = torch.ones(8, 8, dtype=dtype) / 3

        def step() -> models.Outcome:
            if torch.backends.cuda.matmul.allow_tf32:
                raise torch.linalg.LinAlgError("not positive definite")
            return {"square": [a @ a], "cube": [a @ a @ a]}

        return step

    row = models.measure(models.Model("product", "a @ a", prepare), rounds=3)
    # Counts as on a card: without one, torch ran the products.
    tiers = {"fp16x3": 1, "fp16x3 with a scaled lo": 2, "bf16x6": 1, "tiles recomputed": 1}
    row["results"]["mm32"] |= {"kernels": {"simt": 2, "tensorcore": 4}, "left to torch": {"empty": 4}, "tiers": tiers}
    monkeypatch.setattr(record, "environment", lambda: {"card": "a card", "driver": "1.2", "torch": "2.9"})
    record.write(tmp_path / "models.json", record.make("models", [row], models.METHOD))
    return record.read(tmp_path / "models.json")


def test_a_models_record_is_whole_and_makes_a_table(
    models_record: dict, tables: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_models_are_whole(models_record)
    assert models_record["method"] == models.METHOD
    assert models_record["kernels"] == {name: record.kernel_hash(name) for name in ("simt", "tensorcore")}
    results = models_record["rows"][0]["results"]
    results["torch"] |= {"seconds": 0.5, "errors": {"square": 1e-7, "cube": 2e-7}}
    results["mm32"] |= {"seconds": 0.25, "speedup": 2.0, "speedup_low": 1.5, "speedup_high": 2.5}
    results["mm32"]["errors"] = {"square": 3e-7, "cube": 4e-7}
    monkeypatch.setattr(tables, "load", lambda name: models_record)
    row = tables.rendered("models").splitlines()[2]
    assert row == (
        "| **product**: a @ a | 500.000 ms | 250.000 ms | **2.00** (1.50–2.50) | fails: not positive definite | "
        "6 of 10; 2 fp16x3 with a scaled lo, 1 bf16x6, 1 tiles recomputed | square <br> cube | 1.0e-07 <br> 2.0e-07 | "
        "3.0e-07 <br> 4.0e-07 | – <br> – |"
    )
    assert "a card, driver 1.2, torch 2.9" in tables.rendered("models")


def test_a_programs_record_is_whole_and_makes_a_table(
    models_record: dict, tables: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has the geometric mean, the lowest speed, and what could not be measured."""
    (row,) = models_record["rows"]
    slow = {
        **row["results"]["mm32"],
        "speedup": 0.5,
        "speedup_low": 0.4,
        "speedup_high": 0.6,
        "kernels": {},
        "tiers": {},
    }
    row["results"]["mm32"] |= {"speedup": 8.0, "speedup_low": 7.0, "speedup_high": 9.0}
    extra = {"program": "products", "library": "torch 2.9"}
    row |= extra
    second = {**row, "case": "none", "results": {**row["results"], "mm32": slow}}
    failed = {"third": {"program": "third", "why": "timm is not installed"}}
    made = {**models_record, "name": "programs", "rows": [row, second], "failed": failed}
    assert_models_are_whole(made)
    monkeypatch.setattr(tables, "load", lambda name: made)
    table = tables.rendered("programs")
    assert table.splitlines()[2].startswith("| **product**: a @ a (torch 2.9) | ")
    assert "| 0 of 4 |" in table.splitlines()[3]
    said = "2 programs: geometric mean of mm32 : torch **2.00**, lowest 0.50 (none). Not measured: third (timm is not installed)."
    assert said in table
    made["failed"] = {}
    assert "Not measured" not in tables.rendered("programs")


@pytest.mark.parametrize("has", [{"tiers": {"fp16x3": 4}}, {"tiers": {}}, {"careful": 1}], ids=repr)
def test_a_models_record_may_say_nothing_of_tiers(
    has: dict, models_record: dict, tables: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that were made before there were tiers say nothing, nor do steps in which tensor cores had no part."""
    ours = models_record["rows"][0]["results"]["mm32"]
    del ours["tiers"]
    ours |= has
    assert_models_are_whole(models_record)
    monkeypatch.setattr(tables, "load", lambda name: models_record)
    assert "| 6 of 10 |" in tables.rendered("models")


def test_a_table_without_a_record_says_so(tables: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "results")
    for name, said in (
        ("models", "This has not been measured."),
        ("front", "This has not been measured."),
        ("four-cards", "Four cards have not been measured."),
        ("parallel-4", "Four cards have not been measured."),
    ):
        page = tables.filled(f"<!-- table: {name} -->\nold\n<!-- end table -->")
        assert page == f"<!-- table: {name} -->\n{said}\n<!-- end table -->"


def test_other_schemas_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"schema": 0}))
    with pytest.raises(ValueError, match="record schema 0, this version reads 1"):
        record.read(path)


def test_each_kernel_has_a_hash_of_its_own() -> None:
    assert len({record.kernel_hash(kernel) for kernel in record.SOURCES}) == len(record.SOURCES)


def test_comments_make_no_record_of_verdicts_old() -> None:
    code = 'def f(x):\n    """Says\n    what."""\n    # how\n\n    y = "# kept"  # why\n    return f"{x}#{y}"\n'
    bare = 'def f(x):\n    y = "# kept"\n    return f"{x}#{y}"'
    assert record.without_comments(code) == bare
    assert record.without_comments('"""Of a module."""\n' + code) == bare
    assert record.without_comments(code.replace("kept", "kept too")) != bare
    assert record.without_comments("x = 1\n'not a docstring' if x else 2\n") == "x = 1\n'not a docstring' if x else 2"
