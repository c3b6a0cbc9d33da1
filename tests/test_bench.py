"""mm32 bench: how cases are asked for, how they are judged, and how a record looks as a table and as a plot."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from mm32 import plan as planning
from mm32.bench import command, measure, peers, record, sensors, suite, summary
from mm32.bench.measure import Case
from mm32.cli import app
from mm32.install import pip_install
from support.bench import row, text

RECORD = Path(__file__).parent.parent / "benchmarks" / "results" / "nvidia-h200" / "main.json"


@pytest.fixture
def run(monkeypatch):
    """A function that runs `mm32 ARGUMENTS` in this process, wide enough that no line is wrapped."""
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("TERM", "dumb")
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def made() -> dict:
    """A record as another card could have made it."""
    rows = [
        row(Case(1000, 1000, 1000), torch=4e-3, torch_tf32=1e-3, mm32=2e-3),
        row(Case(64, 64, 8, batch=4), torch=5e-6, torch_tf32=5e-6, mm32=1e-5),
    ]
    rows[1]["unavailable"] = {"tensorcore": "it is made of [Hopper's] wgmma instructions"}
    device = {"capability": "8.6", "multiprocessors": 84, "clock": 1_800_000_000, "memory_rate": 768_000_000_000}
    environment = {"card": "NVIDIA RTX A6000", "driver": "580", "torch": "2.11.0", "mm32": "0.1.0", "device": device}
    return {
        "schema": 1, "name": "made,up", "made": "2026-01-02", "environment": environment, "kernels": {}, "method": "",
        "rows": rows,
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# What is asked for


def test_shapes_are_m_k_n_with_layout_and_distribution_in_any_order():
    cases, names = suite.parse(" 2x3x5, 7x8x9:rand:tn,2x3x5:nn ,10x11x12:tt,")
    assert cases == [Case(2, 5, 3), Case(7, 9, 8, "tn", "rand"), Case(10, 12, 11, "tt")]
    assert names == suite.SETS["quick"][1]


def test_sets_and_shapes_together():
    cases, names = suite.parse("ladder,2x3x5,main")
    assert cases[:5] == [*suite.SETS["ladder"][0], Case(2, 5, 3)]
    assert len(cases) == len(set(cases)) == len({*suite.SETS["ladder"][0], *suite.SETS["main"][0], Case(2, 5, 3)})
    assert set(names) == {*suite.SETS["ladder"][1], *suite.SETS["main"][1], *suite.SETS["quick"][1]}
    assert names == [name for name in peers.IMPLEMENTATIONS if name in names]


def test_torch_and_mm32_always_run():
    assert suite.parse("2x3x5", "simt,torch-tf32")[1] == ["torch", "torch-tf32", "mm32", "simt"]
    assert suite.parse("auto", "mm32")[1] == ["torch", "mm32"]


@pytest.mark.parametrize(
    ("shapes", "against", "said"),
    [
        (
            "12x13",
            None,
            "'12x13' is neither a set (main, rivals, shapes, ladder, ieee, small, random, auto, quick) nor sizes MxKxN[:layout]",
        ),
        ("axbxc", None, "'axbxc' is neither a set"),
        ("-1x2x3", None, "'-1x2x3' is neither a set"),
        ("1x2x3x4", None, "'1x2x3x4' is neither a set"),
        ("1x0x3", None, "nothing to time in a size of 0"),
        ("1x2x3:zz", None, "'zz' is neither a layout (nn, nt, tn, tt) nor a distribution (randn, rand)"),
        ("1x2x3:tt:nn", None, "'1x2x3:tt:nn' has two layouts, 'tt' and 'nn'"),
        ("1x2x3:rand:tt:randn", None, "has two distributions, 'rand' and 'randn'"),
        (" , ", None, "no shapes in ' , '"),
        ("1x2x3", "cublas", "unknown implementation 'cublas': there are torch, torch-tf32, triton-tf32x3, mm32,"),
        ("1x2x3", "", "no implementations in ''"),
    ],
)
def test_what_is_not_understood_is_named(shapes, against, said):
    with pytest.raises(ValueError) as refused:
        suite.parse(shapes, against)
    assert said in str(refused.value)


@pytest.mark.parametrize("name", suite.SETS)
def test_sets_hold_what_can_be_run(name):
    cases, names = suite.SETS[name]
    assert len(cases) == len(set(cases))
    assert names[0] == peers.BASELINE
    assert set(names) <= set(peers.IMPLEMENTATIONS)


def test_auto_is_broad_and_still_short():
    cases, _ = suite.SETS["auto"]
    assert len(cases) >= 90
    assert {c.layout for c in cases} == {"nn", "nt", "tn", "tt"}
    assert {(c.m, c.n, c.k) for c in cases} >= {(s, s, s) for s in (64, 16384, 1000, 2049)}
    assert {c.m for c in cases if c.n == c.k == 16384} >= {1, 2, 4, 8, 16, 64, 128, 256}
    assert sum(c.batch > 1 for c in cases) >= 8
    assert any(c.k >= 2**20 for c in cases)
    assert any(c.k == 1 for c in cases)
    # At 50 TFLOP/s in fp32, torch takes 0.4 s to compute all cases once.
    assert sum(c.flops for c in cases) < 2e13


# ---------------------------------------------------------------------------------------------------------------------
# How it is judged


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_inputs_are_views_in_the_layout(layout):
    case = Case(6, 10, 8, layout, "rand", bias=True, batch=3)
    a, b, bias = case.inputs(device="cpu")
    assert (a.shape, b.shape, bias.shape) == ((3, 6, 8), (3, 8, 10), (10,))
    assert a.stride() == ((48, 8, 1) if layout[0] == "n" else (48, 1, 6))
    assert b.stride() == ((80, 10, 1) if layout[1] == "n" else (80, 1, 8))
    assert all(torch.equal(x, y) for x, y in zip(case.inputs(device="cpu"), (a, b, bias), strict=True))
    assert not torch.equal(case.inputs(seed=1, device="cpu")[0], a)


def test_large_products_are_judged_on_a_row_of_every_span(monkeypatch):
    assert measure.judged_rows(Case(8192, 8192, 8192)) is None
    case = Case(16384, 16384, 16384)
    rows = measure.judged_rows(case)
    assert len(rows) == 8192
    assert torch.equal(rows // 2, torch.arange(8192))
    assert 0.3 < float((rows % 2).double().mean()) < 0.7
    monkeypatch.setattr(measure, "JUDGED", 1000)
    uneven = Case(101, 3, 11)  # 6666 FLOP: 15 rows, in spans of 6 or 7
    rows = measure.judged_rows(uneven)
    assert len(rows) == 15
    assert all(101 * i // 15 <= r < 101 * (i + 1) // 15 for i, r in enumerate(rows.tolist()))
    assert measure.judged_rows(Case(1, 3000, 1000)).tolist() == [0]


def test_truth_of_some_rows_is_the_truths_rows():
    case = Case(9, 5, 7, "tt", bias=True, activation="relu", batch=2)
    inputs = case.inputs(device="cpu")
    a, b, bias = (x.clone() for x in inputs)
    truth, gauge = measure.truth_of(case, inputs, None)
    assert torch.equal(truth, torch.relu(a.double() @ b.double() + bias.double()))
    assert torch.equal(gauge, a.double().abs() @ b.double().abs() + bias.double().abs())
    rows = torch.tensor([0, 4, 8])
    for some, whole in zip(measure.truth_of(case, inputs, rows), (truth, gauge), strict=True):
        torch.testing.assert_close(some, whole[:, rows], rtol=1e-15, atol=1e-15)
    assert all(torch.equal(x, y) for x, y in zip(inputs, (a, b, bias), strict=True))


def test_errors_are_relative_to_norm_and_gauge():
    truth, gauge = torch.full((2, 2), 2.0).double(), torch.full((2, 2), 8.0).double()
    c = torch.full((2, 2), 2.0)
    assert measure.errors(c, truth, gauge) == (0.0, 0.0)
    c[1, 0] += 2.0**-20
    norm, most = measure.errors(c, truth, gauge)
    assert norm == 2.0**-20 / 4
    assert most == 2.0**-20 / (8 * 2.0**-24)
    c[0, 0] = math.nan
    assert all(math.isnan(e) for e in measure.errors(c, truth, gauge))


def test_median_and_its_interval():
    assert measure.median([3.0, 1.0, 2.0]) == 2.0
    assert measure.median([4.0, 1.0, 2.0, 3.0]) == 2.5
    assert measure.interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert measure.interval([float(i) for i in range(100)]) == (40.0, 59.0)  # the 41st and the 60th of 100


@pytest.mark.parametrize("name", [n for n in peers.IMPLEMENTATIONS if n != "triton-tf32x3"])
def test_every_implementation_computes_the_same(name):
    case = Case(33, 20, 17, "tn", bias=True, activation="relu")
    inputs = case.inputs(device="cpu")
    c = peers.call(name, *inputs, case.activation)()
    assert measure.errors(c, *measure.truth_of(case, inputs, None))[0] <= 1e-6


def test_torch_tf32_is_for_its_own_calls_only(monkeypatch):
    seen = []
    monkeypatch.setattr(
        torch, "matmul", lambda a, b: seen.append(torch.backends.cuda.matmul.allow_tf32) or torch.zeros(1)
    )
    before = torch.backends.cuda.matmul.allow_tf32
    a = torch.zeros(2, 2)
    for name in ("torch-tf32", "torch", "torch-tf32"):
        peers.call(name, a, a)()
        assert torch.backends.cuda.matmul.allow_tf32 == before
    assert seen == [True, False, True]


def test_without_triton_its_peer_is_not_available(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "mm32.bench.triton_matmul", raising=False)
    with pytest.raises(peers.Unavailable, match=r"triton cannot be imported \(.*\): pip install triton"):
        peers.call("triton-tf32x3", torch.zeros(2, 2), torch.zeros(2, 2))


def test_an_unknown_implementation_is_refused():
    with pytest.raises(ValueError, match="unknown implementation 'cublas': there are torch, "):
        peers.call("cublas", torch.zeros(2, 2), torch.zeros(2, 2))


def test_a_row_has_errors_beside_times_and_reasons_for_what_is_left_out(on_cpu, monkeypatch):
    made_by = peers.call

    def refusing(name, *arguments):
        if name == "simt":
            raise planning.Unplannable("no such card\nand more")
        return made_by(name, *arguments)

    monkeypatch.setattr(peers, "call", refusing)
    case = Case(16, 24, 32)
    made = measure.measure(case, ["torch", "simt", "mm32"])
    assert made["case"] == "16x32x24 nn randn"
    assert (made["m"], made["n"], made["k"], made["rounds"], made["judged_rows"]) == (16, 24, 32, 3, 16)
    assert made["unavailable"] == {"simt": "no such card"}
    assert list(made["results"]) == ["torch", "mm32"]
    ours = made["results"]["mm32"]
    assert (ours["seconds"], ours["low"], ours["high"]) == (2.0, 1.0, 5.0)
    assert (ours["speedup"], ours["speedup_low"], ours["speedup_high"]) == (3.0, 1.0, 4.0)  # the rounds' are 4, 3 and 1
    assert ours["kernel"] in (*planning.KERNELS, "torch")
    assert made["results"]["torch"]["kernel"] == "torch"
    for r in made["results"].values():
        assert 0 < r["error"] <= 1e-6
        assert 0 < r["gauge"] <= 32


def test_a_case_for_which_memory_is_short_is_a_row_without_results(on_cpu, monkeypatch):
    shares = []
    measured = measure.measure

    def short(case, names, rounds, budget, *more):
        shares.append(budget)
        if case.m == 5:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 TiB")
        return measured(case, names, rounds, budget, *more)

    monkeypatch.setattr(measure, "measure", short)
    rows = list(measure.measure_all([Case(5, 5, 5), Case(4, 4, 4)], ["torch", "mm32"], seconds=10.0))
    assert shares == [5.0, 5.0]
    assert rows[0]["results"] == {}
    assert rows[0]["unavailable"] == dict.fromkeys(["torch", "mm32"], "out of memory on the card")
    assert list(rows[1]["results"]) == ["torch", "mm32"]
    assert rows[0].keys() == rows[1].keys()


# ---------------------------------------------------------------------------------------------------------------------
# What is shown


def test_the_table_has_speed_error_and_what_is_not_available(made):
    page = text(summary.table(made))
    lines = [line.split() for line in page.splitlines()]
    assert ["mm32", "(mm32)", "2", "ms", "1", "×2.00", "(2.00–2.00)", "1.0e-06", "16.8"] in lines
    assert ["torch", "4", "ms", "0.5", "1.0e-06", "16.8"] in lines
    assert "64x8x64 batch 4 nn randn" in page
    assert "tensorcore not available: it is made of [Hopper's] wgmma instructions" in page
    assert "NVIDIA RTX A6000, driver 580, torch 2.11.0, mm32 0.1.0, 2026-01-02" in page


def test_a_line_has_each_time_with_its_errors(made):
    line = summary.line(made["rows"][1])
    assert line.startswith("64x8x64 batch 4 nn randn: torch 5 µs ×1.000 (1.0e-06, 16.8); torch-tf32 5 µs")
    assert line.endswith("; tensorcore not available: it is made of [Hopper's] wgmma instructions")


@pytest.mark.parametrize("name", ["auto", "ieee", "ladder", "main", "shapes"])
def test_records_of_products_are_known_as_such(name, made):
    assert summary.is_of_products(record.read(RECORD.with_name(f"{name}.json")))
    assert summary.is_of_products(made)
    made["rows"][1]["results"]["mm32"].pop("gauge")
    assert not summary.is_of_products(made)


def test_worst_and_choice():
    rows = [row(Case(s, s, s), torch=1.0, mm32=t, simt=1.0, tensorcore=2.0) for s, t in ((1, 0.5), (2, 4.0), (3, 1.0))]
    assert [r["m"] for r in summary.worst(rows)] == [2, 3, 1]
    assert [r["m"] for r in summary.worst(rows, count=1)] == [2]
    assert [summary.choice(r) for r in rows] == [("simt", 0.5), ("simt", 4.0), ("simt", 1.0)]
    assert summary.geometric_mean([1.0, 4.0]) == 2.0


def test_times_have_fitting_units():
    assert [summary.time(t) for t in (2.5, 0.0123456, 4.2e-6)] == ["2.5 s", "12.35 ms", "4.2 µs"]


@pytest.fixture
def plots():
    pytest.importorskip("matplotlib")
    from mm32.bench import plots

    return plots


def test_roofs_by_name_by_clock_or_not_at_all(plots, made):
    assert plots.roofs({"card": "NVIDIA H200"}) == plots.Roofs(4.8e12, 66.9e12, 700e12)
    assert plots.roofs(made["environment"]) == plots.Roofs(768e9, 2 * 128 * 84 * 1.8e9, None)
    assert (
        plots.roofs({"card": "other", "device": {"capability": "7.0", "clock": 1, "memory_rate": None}})
        == plots.Roofs()
    )
    assert plots.roofs({"card": "other"}) == plots.Roofs()


def test_intensity_moves_everything_once(plots, made):
    assert plots.intensity(made["rows"][0]) == 2e9 / 12e6
    assert plots.intensity(made["rows"][1]) == 2 * 64 * 64 * 8 / (4 * (64 * 8 * 2 + 64 * 64))


def test_implementations_look_different(plots):
    assert set(plots.STYLES) == set(peers.IMPLEMENTATIONS)
    assert len({marker for _, marker in plots.STYLES.values()}) == len(plots.STYLES)


def drawn(axes) -> dict[str, list[list[float]]]:
    return {points.get_label(): points.get_offsets().tolist() for points in axes.collections}


def test_the_plot_shows_every_result_where_it_belongs(plots, made):
    figure, notes = plots.figure(made)
    speed, error = figure.axes
    x = [plots.intensity(r) for r in made["rows"]]
    assert drawn(speed)["mm32"] == [[x[0], 1.0], [x[1], pytest.approx(2 * 64 * 64 * 8 * 4 / 1e-5 / 1e12)]]
    assert drawn(error)["mm32"] == [[1e-6, 2.0], [1e-6, 0.5]]
    assert list(drawn(speed)) == list(drawn(error)) == ["torch", "torch-tf32", "mm32"]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["torch", "torch-tf32", "mm32"]
    assert "TFLOP/s" in speed.get_ylabel()
    assert "FLOP / byte" in speed.get_xlabel()
    assert "‖C64‖" in error.get_xlabel()
    for axes in (speed, error):
        assert axes.get_xscale() == axes.get_yscale() == "log"
        (low, high), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        for points in drawn(axes).values():
            assert all(low < px < high and bottom < py < top for px, py in points)
    # The flat roof starts where the memory roof ends, and the memory roof has the slope of the memory rate.
    flat, slope = (line.get_xydata().tolist() for line in speed.lines)
    peak = 2 * 128 * 84 * 1.8e-3
    assert flat[0] == pytest.approx([peak / 0.768, peak])
    assert flat[1][1] == pytest.approx(peak)
    assert slope[1] == pytest.approx(flat[0])
    assert slope[0][1] / slope[0][0] == pytest.approx(0.768)
    shown = " ".join(t.get_text() for t in figure.texts)
    assert "NVIDIA RTX A6000, driver 580, torch 2.11.0, mm32 0.1.0" in shown
    assert notes == ["no roof for fp16 rate: not known of NVIDIA RTX A6000"]
    assert notes[0] in shown


def test_the_plot_of_a_record_of_other_kernels_says_so(plots, made):
    for kernels, old in (({"simt": "0"}, True), ({"simt": record.kernel_hash("simt")}, False)):
        figure, _ = plots.figure(made | {"kernels": kernels})
        assert ("Measured with other versions of simt" in " ".join(t.get_text() for t in figure.texts)) == old


def test_the_legend_lies_beside_the_data(plots):
    figure, notes = plots.figure(record.read(RECORD))
    assert notes == []
    legend = figure.legends[0].get_window_extent()
    for axes in figure.axes:
        box = axes.get_tightbbox()
        assert not legend.overlaps(box)
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width
    left, right = (axes.get_tightbbox() for axes in figure.axes)
    assert left.x1 < right.x0


def test_a_long_name_stays_on_the_figure(plots, made):
    made["name"] = ",".join(f"{1000 + i}x2048x{4096 + i}:tt:rand" for i in range(20))
    figure, _ = plots.figure(made)
    assert figure.texts[0].get_text().endswith("…")
    for shown in figure.texts:
        assert shown.get_window_extent().x1 <= figure.bbox.width


def test_errors_that_cannot_be_drawn_are_counted(plots, made):
    made["rows"][0]["results"]["mm32"]["error"] = math.nan
    made["rows"][1]["results"]["torch"]["error"] = 0.0
    figure, notes = plots.figure(made)
    assert notes[-1] == "2 errors of 0, infinity or NaN are not drawn"
    assert drawn(figure.axes[1])["mm32"] == [[1e-6, 0.5]]
    assert len(drawn(figure.axes[0])["mm32"]) == 2


def test_a_record_without_results_is_not_drawn(plots, made):
    for r in made["rows"]:
        r["results"] = {}
    with pytest.raises(ValueError, match="no results to draw"):
        plots.figure(made)


# ---------------------------------------------------------------------------------------------------------------------
# The command


@pytest.fixture
def no_card(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_without_a_card_the_command_says_so(run, no_card):
    done = run("bench", "--shapes", "64x64x64")
    assert done.exit_code == 2
    assert done.stderr == "mm32 bench needs a CUDA device; torch finds none here (--from FILE shows a saved record)\n"
    assert done.stdout == ""


def test_sizes_may_stand_without_their_option(run, monkeypatch):
    asked = []
    monkeypatch.setattr(command, "bench", lambda shapes, *others: asked.append(shapes))
    for words in (["64"], ["--shapes", "64"], ["--shapes", "64", "main", "32x8x8:tt"], []):
        assert run("bench", *words).exit_code == 0
    assert asked == ["64", "64", "64,main,32x8x8:tt", None]
    monkeypatch.undo()
    done = run("bench", "12xax7")
    assert done.exit_code == 2
    assert "'12xax7' is neither a set" in done.output


def test_the_help_names_every_set_and_implementation(run):
    words = set(
        run("bench", "--help").output.replace(",", " ").replace("(", " ").replace(")", " ").replace(".", " ").split()
    )
    assert {*suite.SETS, *peers.IMPLEMENTATIONS} <= words


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--shapes", "12x13"), "'12x13' is neither a set"),
        (("--against", "cublas"), "unknown implementation 'cublas'"),
        (("--json", "/nowhere/at/all.json"), "there is no folder /nowhere/at"),
        (("--plot", "/nowhere/at/all.png"), "there is no folder /nowhere/at"),
        (("--from", RECORD, "--shapes", "main"), "--shapes, --against and --energy do not go with it"),
        (("--from", __file__), "is not a record"),
        (("--from", "/nowhere.json"), "does not exist"),
        (
            ("--from", RECORD.with_name("host.json")),
            "host.json is a record of 'host': bench --from shows records of products",
        ),
        (("--from", RECORD.with_name("models.json")), "models.json is a record of 'models'"),
        (("--from", RECORD.with_name("exports.json")), "exports.json is a record of 'exports'"),
        (("--json", RECORD.parent), f"{RECORD.parent} is a folder"),
        (("--plot", RECORD.parent), f"{RECORD.parent} is a folder"),
        (("--from", RECORD, "--json", "/dev/full"), "/dev/full cannot be written: [Errno 28]"),
        (("--shapes", ""), "no shapes in ''"),
    ],
)
def test_what_cannot_be_done_is_said_first(run, no_card, arguments, said):
    done = run("bench", *arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert "Traceback" not in done.output


def test_a_plot_of_an_unknown_kind_is_refused(run, plots, no_card, tmp_path):
    done = run("bench", "--plot", tmp_path / "speed.docx")
    assert done.exit_code == 2
    assert "a plot is one of" in done.stderr
    assert "png" in done.stderr


def test_without_matplotlib_the_extra_is_named_before_anything_is_measured(run, no_card, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = run("bench", "--plot", tmp_path / "speed.png")
    assert done.exit_code == 2
    assert f"--plot needs matplotlib: {pip_install('bench')}" in done.stderr


def test_a_saved_record_is_shown_drawn_and_written_again(run, plots, no_card, tmp_path):
    picture, copied = tmp_path / "speed.png", tmp_path / "again.json"
    done = run("bench", "--from", RECORD, "--plot", picture, "--json", copied)
    assert done.exit_code == 0, done.output
    saved = record.read(RECORD)
    first = saved["rows"][0]
    assert first["case"] in done.stdout
    assert f"{first['results']['mm32']['error']:.1e}" in done.stdout
    assert f"wrote {picture}" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")
    assert record.read(copied) == saved


def test_json_on_standard_output_stands_alone(run, no_card):
    done = run("bench", "--from", RECORD, "--json", "-")
    assert json.loads(done.stdout) == record.read(RECORD)
    assert "× torch" in done.stderr


def test_the_command_measures_what_was_asked(run, on_cpu, monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        record, "environment", lambda: {"card": "a card", "driver": "1", "torch": "2", "mm32": "0", "device": {}}
    )
    monkeypatch.setattr(sensors, "of_current_card", lambda: (None, "no sensor here"))
    out = tmp_path / "made.json"
    done = run("bench", "--shapes", "16x16x16,8x8x8:tt:rand", "--against", "simt", "--json", out)
    assert done.exit_code == 0, done.output
    assert done.stderr.splitlines() == ["mm32: 1/2 16x16x16 nn randn", "mm32: 2/2 8x8x8 tt rand"]
    written = record.read(out)
    assert [r["case"] for r in written["rows"]] == ["16x16x16 nn randn", "8x8x8 tt rand"]
    assert written["name"] == "16x16x16,8x8x8:tt:rand"
    assert written["kernels"].keys() >= {"simt"}
    assert written["sensor"] == "none: no sensor here"
    assert "Clock and power were not read: no sensor here" in done.stdout
    for r in written["rows"]:
        assert list(r["results"]) == ["torch", "mm32", "simt"]
        assert all(0 < x["error"] <= 1e-6 for x in r["results"].values())
        assert r["results"]["simt"]["speedup"] == 5 / 8


# ---------------------------------------------------------------------------------------------------------------------
# On a card


@pytest.mark.gpu
def test_a_benchmark_on_this_card(run, tmp_path):
    out = tmp_path / "made.json"
    others = "torch-tf32,mm32-ieee,simt,tensorcore"
    done = run("bench", "--shapes", "512x300x256:tt,100x1000x1:rand", "--against", others, "--json", out)
    assert done.exit_code == 0, done.output
    written = record.read(out)
    assert written["environment"]["card"] == torch.cuda.get_device_name()
    assert record.stale(written) == []
    for r in written["rows"]:
        assert r["rounds"] == 15
        assert {"torch", "mm32", "mm32-ieee", "simt"} <= r["results"].keys()
        assert r["results"].keys() | r["unavailable"].keys() == {"torch", "mm32", *others.split(",")}
        for name, x in r["results"].items():
            assert 0 < x["low"] <= x["seconds"] <= x["high"] < 0.1
            assert x["error"] <= (2e-3 if name == "torch-tf32" else 2e-6), name


@pytest.mark.gpu
def test_a_record_knows_what_the_cards_roofs_are_made_of():
    device = record.environment()["device"]
    p = torch.cuda.get_device_properties(0)
    assert device["capability"] == f"{p.major}.{p.minor}"
    assert device["multiprocessors"] == p.multi_processor_count
    assert 0.5e9 < device["clock"] < 5e9
    assert 0.1e12 < device["memory_rate"] < 20e12


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(
    ("m", "n", "k", "batch"), [(256, 192, 128, 1), (129, 65, 1000, 1), (1, 70, 33, 3), (7, 1, 1, 2)]
)
@pytest.mark.parametrize("relu", [False, True])
def test_the_triton_kernel_computes_the_product(m, n, k, batch, layout, relu):
    pytest.importorskip("triton")
    case = Case(m, n, k, layout, bias=relu, activation="relu" if relu else None, batch=batch)
    inputs = case.inputs()
    c = peers.call("triton-tf32x3", *inputs, case.activation)()
    assert c.shape == ((batch, m, n) if batch > 1 else (m, n))
    truth, gauge = measure.truth_of(case, inputs, None)
    # Three TF32 products lose some bits in the tensor cores' truncating sums; a single TF32 product is off by 5e-4 of the gauge.
    worst = float(((c.double() - truth).abs() / gauge).max())
    assert worst <= 2e-5
