"""Families of data: what they contain, how errors on them are judged, and how a record of them is shown."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import mm32
from mm32.bench import families, measure, record
from mm32.bench.families import FAMILIES, GAUGES, IMPLEMENTATIONS, KINDS, Family, U
from mm32.dropin import Stats

ROOT = Path(__file__).parent.parent
SIZES = (64, 96, 80)  # M, K, N
EACH = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
# Family -> how many elements of A and of B are not finite; other families have none.
SPECIAL = {"naninf": (1, 1), "allnan": (64 * 96, 0), "allinf": (64 * 96, 0)}


def by_name(name: str) -> Family:
    (family,) = families.named([name])
    return family


# ---------------------------------------------------------------------------------------------------------------------
# What they contain


def test_there_are_many_and_each_is_described() -> None:
    assert len(FAMILIES) >= 46
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    assert len({family.what for family in FAMILIES}) == len(FAMILIES)
    assert all(1 <= len(family.what.split()) <= 8 for family in FAMILIES)
    assert {family.kind for family in FAMILIES} == set(KINDS)
    assert {family.kind for family in families.named(families.SOME)} == set(KINDS)


@EACH
def test_matrices_are_float32_of_the_shape_asked_for(family: Family) -> None:
    m, k, n = SIZES
    a, b = family.inputs(m, k, n, device="cpu")
    assert (a.shape, b.shape) == ((m, k), (k, n))
    assert a.dtype == b.dtype == torch.float32
    assert a.is_contiguous()
    assert b.is_contiguous()
    assert tuple(int((~x.isfinite()).sum()) for x in (a, b)) == SPECIAL.get(family.name, (0, 0))
    assert a.count_nonzero() > 0
    assert b.count_nonzero() > 0


@EACH
def test_any_sizes_will_do(family: Family) -> None:
    for m, k, n in ((80, 16, 64), (16, 96, 16)):
        a, b = family.inputs(m, k, n, device="cpu")
        assert (a.shape, b.shape) == ((m, k), (k, n))


@EACH
def test_a_family_is_the_same_whichever_others_were_drawn(family: Family) -> None:
    first = family.inputs(*SIZES, device="cpu")
    FAMILIES[0].inputs(*SIZES, device="cpu")
    torch.rand(3)
    for x, y in zip(first, family.inputs(*SIZES, device="cpu"), strict=True):
        assert torch.equal(x.view(torch.int32), y.view(torch.int32))


def test_families_have_numbers_of_their_own() -> None:
    assert not torch.equal(*(by_name(name).inputs(*SIZES, device="cpu")[1] for name in ("softmax1", "softmax2")))


def test_a_batch_is_of_several_draws() -> None:
    family = by_name("phi1")
    a, b = family.inputs(*SIZES, batch=3, device="cpu")
    assert (a.shape, b.shape) == ((3, 64, 96), (3, 96, 80))
    assert torch.equal(a[0], family.inputs(*SIZES, device="cpu")[0])
    assert not torch.equal(a[0], a[1])


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("softmax2", lambda a, b: (a.sum(1) - 1).abs().max() < 1e-5),
        ("logitgrad", lambda a, b: a.sum(0).abs().max() < 1e-6 and (b >= 0).all()),
        ("onehot", lambda a, b: (a.sum(1) == 1).all() and a.count_nonzero() == len(a)),
        ("hilbert", lambda a, b: a[2, 3] == torch.tensor(1 / 6) == b[1, 4]),
        ("vander", lambda a, b: (a[-1] == 1).all() and a[0, 1] == -1),
        ("dft", lambda a, b: torch.allclose(a[:, 48], torch.tensor([1.0, -1.0]).repeat(32), atol=1e-5)),
        ("tril", lambda a, b: a.count_nonzero() == 64 * 65 // 2),
        ("trilsq", lambda a, b: a[0, :33].all() and not a[0, 33:].any() and a[-1].all()),
        ("trilxtriu", lambda a, b: not a.triu(1).any() and not b.tril(-1).any()),
        ("banded", lambda a, b: not a[0, 9:].any() and not a[-1, :80].any() and a[32, 44:53].all()),
        ("rbf1xnoise", lambda a, b: (a.max(1).values == 1).all() and (a >= 0).all()),
        ("rbf2xrbf", lambda a, b: (a.max(1).values == 1).all() and (b.max(0).values == 1).all()),
        ("poisson", lambda a, b: torch.equal(a, a.round()) and 2.5 < a.mean() < 3.5 and 0.4 < b.mean() < 0.6),
        ("6ch300", lambda a, b: int((a.abs().mean(0) > 100).sum()) == 6 and b.abs().max() < 0.2),
        ("nearI1e-6", lambda a, b: a[5, 5].round() == 1 and 0 < a[5, 6].abs() < 1e-5 and b[70, 70].round() == 1),
        ("graded", lambda a, b: a[:, 90:].abs().max() < 1e-4 and b[90:].abs().max() < 1e-4),
        ("diag12", lambda a, b: (a.abs().mean(0) * b.abs().mean(1)).log10().abs().max() < 0.5 and a.abs().max() > 1e4),
        ("1%", lambda a, b: 0 < a.count_nonzero() < 200 and b.all()),
        ("onebadrow", lambda a, b: a[5].abs().max() > 1e10 and a[6:].abs().max() < 10),
        ("naninf", lambda a, b: a[7, 9].isnan() and b[11, 13].isposinf()),
        ("subnormal", lambda a, b: 0 < a.abs().max() < 2.0**-126),
        ("cancel", lambda a, b: (a > 0.9).all() and (b[::2] > 0.9).all() and (b[1::2] < -0.9).all()),
    ],
)
def test_a_family_is_what_it_says(name: str, holds: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
    assert bool(holds(*by_name(name).inputs(*SIZES, device="cpu")))


def test_an_unknown_family_is_refused() -> None:
    assert [family.name for family in families.named(["phi4", "randn"])] == ["phi4", "randn"]
    with pytest.raises(ValueError, match="unknown family 'phi3': there are randn, rand, "):
        families.named(["randn", "phi3"])


# ---------------------------------------------------------------------------------------------------------------------
# Errors


def judged(c: list[float], truth: list[float], size: list[float]) -> dict[str, float]:
    tensors = torch.tensor([c]), torch.tensor([truth], dtype=torch.float64), torch.tensor([size], dtype=torch.float64)
    return families.errors(*tensors)


NONE, INFINITE = dict.fromkeys(GAUGES, 0.0), dict.fromkeys(GAUGES, math.inf)


def test_errors_are_in_units_of_u() -> None:
    # The element of 4 is off by one unit in its last place, 8 u; the vector's norm is 5, and the element's terms add up to 8.
    found = judged([3.0, 4.0 + 2 * U * 4], [3.0, 4.0], [3.0, 8.0])
    assert found == pytest.approx({"normwise": 8 / 5, "componentwise": 1.0}, rel=1e-12)


def test_what_is_exact_has_no_error() -> None:
    assert judged([3.0, 0.0], [3.0, 0.0], [4.0, 0.0]) == NONE
    assert judged([0.0, 0.0], [0.0, 0.0], [0.0, 0.0]) == NONE
    assert judged([2.0**-149], [2.0**-148], [1.0]) == NONE  # one spacing of subnormal numbers


def test_an_error_where_there_is_nothing_is_infinite() -> None:
    assert judged([1e-20, 0.0], [0.0, 0.0], [0.0, 0.0]) == INFINITE


def test_nan_and_inf_must_be_the_same() -> None:
    nan, inf = math.nan, math.inf
    assert judged([nan, inf, -inf], [nan, inf, -inf], [nan, inf, inf]) == NONE
    assert judged([nan, 1.0], [nan, 1.0], [nan, 1.0]) == NONE
    assert judged([inf], [1e39], [1e39]) == NONE  # fp32 holds no more
    found = judged([nan, 1 + 2 * U], [nan, 1.0], [nan, 1.0])
    assert found == pytest.approx({"normwise": 2.0, "componentwise": 2.0})
    for c, truth in (([nan], [1.0]), ([1.0], [nan]), ([inf], [-inf]), ([inf], [1.0]), ([nan], [inf]), ([3e38], [inf])):
        assert judged(c, truth, [1.0]) == INFINITE, (c, truth)


@pytest.mark.parametrize("name", ["randn", "phi4", "cancel", "subnormal", "naninf", "allinf"])
def test_the_gauges_are_those_of_the_accuracy_tests(name: str) -> None:
    a, b = by_name(name).inputs(*SIZES, device="cpu")
    truth, size = measure.truth_of(measure.Case(64, 80, 96), (a, b, None), None)
    found = families.errors(a @ b, truth, size)
    assert all(0 <= found[gauge] < math.inf for gauge in GAUGES)
    if name in ("randn", "phi4", "cancel"):
        numerics = pytest.importorskip("mm32.numerics")
        c = (a @ b).numpy()
        assert found["normwise"] == pytest.approx(numerics.normwise(c, a.numpy(), b.numpy()) / U)
        assert found["componentwise"] == pytest.approx(numerics.componentwise(c, a.numpy(), b.numpy()))


def test_the_promise_is_torchs_error_or_four_units() -> None:
    def pair(normwise: float, componentwise: float) -> dict[str, float]:
        return {"normwise": normwise, "componentwise": componentwise}

    assert families.keeps(pair(3, 4), pair(1, 1))
    assert families.keeps(pair(20, 1), pair(20, 1))
    assert families.keeps(pair(20, 3.9), pair(21, 1))
    assert not families.keeps(pair(20, 4.1), pair(21, 1))
    assert not families.keeps(pair(4.1, 1), pair(4.0, 100))
    assert not families.keeps(pair(math.inf, math.inf), pair(1, 1))
    assert not families.keeps(pair(math.nan, 1), pair(5, 5))


def test_judged_rows_have_the_first_and_are_evenly_spread() -> None:
    assert families.judged_rows(512) is None
    for m in (513, 2048, 10000):
        rows = families.judged_rows(m)
        assert rows is not None
        assert len(rows) <= 512
        assert rows[:16].tolist() == list(range(16))
        assert int(rows.diff().min()) >= 1
        assert int(rows.diff().max()) <= math.ceil(m / 496)
        assert m - math.ceil(m / 496) <= rows[-1] < m


# ---------------------------------------------------------------------------------------------------------------------
# Measuring


def assert_whole(row: dict[str, Any]) -> None:
    assert row.keys() == {
        "case", "family", "what", "kind", "m", "k", "n", "batch", "rounds", "judged_rows", "tiers", "keeps", "results",
    }  # fmt: skip
    assert tuple(row["results"]) == IMPLEMENTATIONS
    for result in row["results"].values():
        assert result.keys() == {
            "seconds", "low", "high", "speedup", "speedup_low", "speedup_high", "normwise", "componentwise", "kernel",
        }  # fmt: skip
        assert 0 < result["low"] <= result["seconds"] <= result["high"]
        assert 0 < result["speedup_low"] <= result["speedup"] <= result["speedup_high"]
        assert all(result[gauge] >= 0 for gauge in GAUGES)
    assert row["results"]["torch"]["speedup"] == 1
    assert isinstance(row["keeps"], bool)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """`families.measure` on the CPU, by the host's clock; each call of mm32 adds to two of the tiers' counts."""
    calls = 0

    def interleave(functions: dict[str, Callable], rounds: int, budget: float) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {name: [] for name in functions}
        for _ in range(rounds):
            for name, function in functions.items():
                begin = time.perf_counter()
                function()
                times[name].append(time.perf_counter() - begin)
        return times

    matmul = mm32.matmul

    def counting(*args: Any, **options: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return matmul(*args, **options)

    tiers = lambda: Stats({}, {}, 0.0, {"fp16x3": 0, "bf16x6": 7 + calls, "tiles recomputed": calls, "FMA": 5})  # noqa: E731
    monkeypatch.setattr(measure, "interleave", interleave)
    monkeypatch.setattr(measure, "kernel_of", lambda case, name, inputs: "tensorcore" if name == "mm32" else "torch")
    monkeypatch.setattr(mm32, "matmul", counting)
    monkeypatch.setattr(mm32, "stats", tiers)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(("name", "m", "batch"), [("randn", 64, 1), ("naninf", 640, 1), ("phi4", 64, 3)])
def test_a_row_has_times_errors_and_tiers(name: str, m: int, batch: int) -> None:
    family = by_name(name)
    row = families.measure(family, m, 96, 80, batch, rounds=5, device="cpu")
    assert_whole(row)
    assert (row["m"], row["k"], row["n"], row["batch"], row["rounds"]) == (m, 96, 80, batch, 5)
    assert (row["family"], row["what"], row["kind"]) == (name, family.what, family.kind)
    assert row["judged_rows"] == (64 if m == 64 else 499)
    assert row["tiers"] == {"bf16x6": 1, "tiles recomputed": 1}
    assert row["keeps"]  # since mm32 and torch compute the same product here
    assert row["results"]["mm32"]["kernel"] == "tensorcore"
    assert 0 < row["results"]["mm32"]["normwise"] < 4
    assert row["results"]["mm32"]["normwise"] == row["results"]["torch"]["normwise"]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["randn", "phi4", "naninf"])
def test_a_row_of_the_card_is_whole(name: str) -> None:
    row = families.measure(by_name(name), 1024, 1024, 1024, rounds=3)
    assert_whole(row)
    assert row["results"]["torch"]["normwise"] < row["results"]["torch-tf32"]["normwise"] < math.inf
    assert row["results"]["mm32"]["normwise"] < row["results"]["torch-tf32"]["normwise"] / 10
    if row["results"]["mm32"]["kernel"] == "tensorcore":
        assert row["tiers"]
        assert set(row["tiers"].values()) == {1}


# ---------------------------------------------------------------------------------------------------------------------
# A record of them


def result(seconds: float, normwise: float, componentwise: float, kernel: str = "torch") -> dict[str, Any]:
    speed = 1e-3 / seconds
    return {
        "seconds": seconds, "low": seconds, "high": seconds, "speedup": speed, "speedup_low": speed, "speedup_high": speed,
        "normwise": normwise, "componentwise": componentwise, "kernel": kernel,
    }  # fmt: skip


def row(
    name: str, seconds: float, tiers: dict[str, int], keeps: bool = True, m: int = 2048, batch: int = 1
) -> dict[str, Any]:
    """A row in which torch took 1 ms and TF32 a tenth of that."""
    family = by_name(name)
    ours = result(seconds, 0.0 if name == "allnan" else 2.5, 1.25, "tensorcore" if tiers else "torch")
    return {
        "case": f"{m}x4096x2048 nn {name}", "family": name, "what": family.what, "kind": family.kind,
        "m": m, "k": 4096, "n": 2048, "batch": batch, "rounds": 3, "judged_rows": 508, "tiers": tiers, "keeps": keeps,
        "results": {"torch": result(1e-3, 12.0, 5.0), "torch-tf32": result(1e-4, 5000.0, 450.0), "mm32": ours},
    }  # fmt: skip


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    environment = {"card": "a card", "driver": "1.2", "torch": "2.9", "mm32": "0.1"}
    monkeypatch.setattr(record, "environment", lambda: environment)
    rows = [
        row("randn", 2.5e-4, {"fp16x3": 1}),
        row("phi4", 1e-3, {"bf16x6": 1, "tiles recomputed": 1}, keeps=False),
        row("allnan", 1e-3, {}),
        row("randn", 5e-4, {"fp16x3": 1}, m=512, batch=8),
    ]
    return record.make("families", rows, families.METHOD)


@pytest.fixture
def tables(made: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """benchmarks/tables.py in a repository that has only this record."""
    spec = importlib.util.spec_from_file_location("tables", ROOT / "benchmarks" / "tables.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "RESULTS", tmp_path / "benchmarks" / "results")
    record.write(module.RESULTS / module.CARD / "families.json", made)
    (tmp_path / "docs").mkdir()
    return module


def test_a_record_knows_its_kernels_and_means(made: dict[str, Any]) -> None:
    assert made["kernels"] == {"tensorcore": record.kernel_hash("tensorcore")}
    assert list(families.by_shape(made["rows"])) == ["2048x4096x2048", "512x4096x2048 batch 8"]
    means = families.geometric_means(made["rows"])
    assert means["2048x4096x2048"] == pytest.approx({"torch": 1.0, "torch-tf32": 10.0, "mm32": 4 ** (1 / 3)})
    assert means["512x4096x2048 batch 8"]["mm32"] == pytest.approx(2.0)


def test_a_line_says_what_ran_and_when_the_promise_is_broken(made: dict[str, Any]) -> None:
    assert [" ".join(families.line(r).split()) for r in made["rows"][:3]] == [
        "randn 1 ms mm32 ×4.00 TF32 ×10.00 torch 12 / 5 mm32 2.5 / 1.25 fp16x3",
        "phi4 1 ms mm32 ×1.00 TF32 ×10.00 torch 12 / 5 mm32 2.5 / 1.25 bf16x6, tiles recomputed LARGER THAN TORCH'S",
        "allnan 1 ms mm32 ×1.00 TF32 ×10.00 torch 12 / 5 mm32 0 / 1.25 torch",
    ]


def test_the_table_has_the_kinds_one_by_one(tables: ModuleType) -> None:
    lines = tables.rendered("families").splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "## 2048 × 4096 × 2048",
        *(f"### {KINDS[k]}" for k in ("fits", "needs more", "ends")),
        "## 512 × 4096 × 2048, batch 8",
    ]
    assert [line for line in lines if line.startswith("| `")] == [
        "| `randn` | normal numbers | 1.000 ms | 0.250 ms | **4.00** (4.00–4.00) | 10.00 | 12 / 5 | 2.5 / 1.25 | fp16x3 |",
        "| `phi4` | (U - ½)·exp(φN), φ = 4 | 1.000 ms | 1.000 ms | **1.00** (1.00–1.00) | 10.00 | 12 / 5 | 2.5 / 1.25 | bf16x6, "
        "tiles recomputed |",
        "| `allnan` | A all NaN | 1.000 ms | 1.000 ms | **1.00** (1.00–1.00) | 10.00 | 12 / 5 | 0 / 1.25 | torch |",
        # The further shape has no column that describes the families.
        "| `randn` | 1.000 ms | 0.500 ms | **2.00** (2.00–2.00) | 10.00 | 12 / 5 | 2.5 / 1.25 | fp16x3 |",
    ]
    assert lines[-1].startswith("a card, driver 1.2, torch 2.9, ")


def test_the_summary_has_the_shapes_one_by_one(tables: ModuleType) -> None:
    lines = tables.rendered("families-shapes").splitlines()
    assert [line for line in lines if line[2:3].isdigit()] == [
        "| 2048 × 4096 × 2048 | 3 | **1.59** | 1.00 (`phi4`) | 10.00 | `phi4` |",
        "| 512 × 4096 × 2048, batch 8 | 1 | **2.00** | 2.00 (`randn`) | 10.00 | none |",
    ]
    assert lines[-1].startswith("a card, driver 1.2, torch 2.9, ")


def test_the_picture_is_drawn_where_the_record_is_another(tables: ModuleType, made: dict[str, Any]) -> None:
    page = "<!-- table: picture-families -->\n<!-- end table -->"
    assert 'src="pictures/families-light.svg"' in tables.filled(page)
    assert 'srcset="docs/pictures/families-dark.svg"' in tables.filled(page, "docs/")
    files = [f"docs/pictures/families-{theme}.svg" for theme in ("light", "dark")]
    assert set(files) <= set(tables.draw(check=True))
    assert not (tables.ROOT / files[0]).exists()
    assert set(files) <= set(tables.draw(check=False))
    assert tables.draw(check=True) == []
    record.write(tables.RESULTS / tables.CARD / "families.json", made | {"made": "2030-01-01 00:00 UTC"})
    assert tables.draw(check=True) == files


def test_without_a_record_there_is_no_picture(tables: ModuleType) -> None:
    (tables.RESULTS / tables.CARD / "families.json").unlink()
    assert not any("families" in name for name in tables.draw(check=False))
    for name in ("families", "picture-families"):
        page = tables.filled(f"<!-- table: {name} -->\nold\n<!-- end table -->")
        assert "This has not been measured." in page
        assert "](" not in page
        assert "<img" not in page


def test_the_picture_has_every_family_of_the_first_shape(tables: ModuleType, made: dict[str, Any]) -> None:
    light = tables.PICTURES["families"][1](made, tables.THEMES[0])
    assert light.count(f'fill="{tables.THEMES[0].colours["torch"]}"') >= 3
    marks = [line for line in light.splitlines() if line.startswith(("<circle", "<polygon"))]
    assert len(marks) == 3 + 3 * 3, (
        "a mark of each implementation in the legend, and one for each family, errors of 0 too"
    )
    for said in (
        "3 families of data, 2048 × 4096 × 2048",
        ">randn<",
        ">phi4<",
        ">4 u<",
        "a card, driver 1.2, torch 2.9, ",
    ):
        assert said in light
    assert "speed 1.00 to 4.00 (geometric mean 1.59), error 0 u to 2.5 u" in light
    assert "Measured before" not in light
    stale = tables.PICTURES["families"][1](made | {"kernels": {"tensorcore": "0" * 16}}, tables.THEMES[0])
    assert "Measured before the latest change to tensorcore." in stale


# ---------------------------------------------------------------------------------------------------------------------
# The script


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """A function that runs benchmarks/families.py with the given arguments, in a folder of its own."""
    spec = importlib.util.spec_from_file_location("families_script", ROOT / "benchmarks" / "families.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "__file__", str(tmp_path / "families.py"))

    def run(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["families.py", *arguments])
        return module.main()

    return run


def test_the_script_needs_a_card(
    script: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert script("--only", "randn,phi4", "--shape", "64x96x80") == 2
    assert "needs a CUDA device" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "randn,phi3"), "unknown family 'phi3': there are randn"),
        (("--shape", "64x8x80"), "'64x8x80' is no shape MxKxN"),
        (("--shape", "64x80"), "'64x80' is no shape MxKxN"),
    ],
)
def test_the_script_refuses_what_there_is_not(
    arguments: tuple[str, ...], said: str, script: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        script(*arguments)
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("made")  # an environment without a card
def test_only_a_run_of_all_families_replaces_the_record(
    script: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(family: Family, m: int, k: int, n: int, batch: int, rounds: int) -> dict[str, Any]:
        assert rounds == 7
        return row(family.name, 5e-4, {"fp16x3": 1}, family.name != "phi4", m, batch) | {"k": k, "n": n}

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(families, "measure", measured)
    written = tmp_path / "results" / "nvidia-h200" / "families.json"

    assert script("--only", "randn,phi4", "--rounds", "7") == script("--shape", "64x96x80", "--rounds", "7") == 0
    assert not written.exists()
    assert script("--only", "randn,phi4", "--rounds", "7", "-o", str(tmp_path)) == 0
    assert [r["family"] for r in record.read(tmp_path / "families.json")["rows"]] == ["randn", "phi4"]
    assert "errors larger than torch's: phi4\n" in capsys.readouterr().out

    assert script("--all-shapes", "--rounds", "7") == 0
    saved = record.read(written)
    shapes = families.by_shape(saved["rows"])
    assert [r["family"] for r in shapes.pop("2048x4096x2048")] == [family.name for family in FAMILIES]
    assert list(shapes) == ["2048x2048x2048", "512x4096x512", "2048x256x2048", "512x512x512 batch 8"]
    assert all([r["family"] for r in rows] == list(families.SOME) for rows in shapes.values())
    assert saved["geometric_means"]["512x4096x512"] == pytest.approx({"torch": 1, "torch-tf32": 10, "mm32": 2})
    last = capsys.readouterr().out.splitlines()[-5:]
    assert last[0].startswith(
        "2048x4096x2048, 55 families: geometric mean of mm32 : torch 2.00, of TF32 : torch 10.00; lowest 2.00"
    )
