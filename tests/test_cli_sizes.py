"""MxKxN:layout, the way to write products for bench, explain and export: axes that are ranges and lists, squares, words."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from mm32 import sizes
from mm32.bench import suite
from mm32.bench.measure import Case
from mm32.cli import app


def written(text: str, **kinds: tuple[str, ...]) -> list[tuple[int, int, int, str | None]]:
    return [(one.m, one.k, one.n, one.layout) for one in sizes.parse(text, **kinds)]


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("2x3x5", [(2, 3, 5, None)]),
        ("2x3x5:tn", [(2, 3, 5, "tn")]),
        ("7", [(7, 7, 7, None)]),
        ("512..4096:tt", [(s, s, s, "tt") for s in (512, 1024, 2048, 4096)]),
        ("512..5000", [(s, s, s, None) for s in (512, 1024, 2048, 4096)]),
        ("0..10+4", [(s, s, s, None) for s in (0, 4, 8)]),
        ("3..3", [(3, 3, 3, None)]),
        ("1/3..7+2/64..128", [(s, s, s, None) for s in (1, 3, 5, 7, 64, 128)]),
        ("5/1..5+2", [(s, s, s, None) for s in (5, 1, 3)]),
        ("1/2x8x3..6", [(1, 8, 3, None), (1, 8, 6, None), (2, 8, 3, None), (2, 8, 6, None)]),
        ("2x3/4x5:nn/tt", [(2, 3, 5, "nn"), (2, 3, 5, "tt"), (2, 4, 5, "nn"), (2, 4, 5, "tt")]),
    ],
)
def test_axes_are_sizes_ranges_and_lists(text, means):
    assert written(text) == means


def test_words_of_each_kind_are_axes_too():
    made = sizes.parse("8:rand/randn:nn/tt", distribution=("rand", "randn"))
    assert [(one.layout, one.words) for one in made] == [
        (layout, {"distribution": drawn}) for layout in ("nn", "tt") for drawn in ("rand", "randn")
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2x3", "'2x3' is not of the form MxKxN[:layout][:distribution], such as 2048x8192x4096:tt"),
        ("512..", "is not of the form"),
        ("..512", "is not of the form"),
        ("1..2..3", "is not of the form"),
        ("1..8*2", "is not of the form"),
        ("2x3x5:", "is not of the form"),
        ("2x3x5:nn/", "is not of the form"),
        ("9..2", "'9..2': '9..2' ends below where it begins"),
        ("0..8", "'0..8': '0..8' doubles from 0; a range that adds is written 0..64+16"),
        ("8x1..9+0x8", "'8x1..9+0x8': '1..9+0' has steps of 0"),
        ("1..100000000000+1", "'1..100000000000+1' has 100000000000 sizes; 4096 are the most that one text may have"),
        ("1..100+1x1..100+1x1:nn", "has 10000 products; 4096 are the most that one text may have"),
        ("8:nn:tt", "'8:nn:tt' has two layouts, 'nn' and 'tt'; several are written nn/tt"),
        ("8:nn/tt/nn", "has two layouts, 'tt' and 'nn'"),
        ("8:nn/rand", "'nn/rand' has a layout and a distribution; a colon stands between those"),
        ("8:rand/zz", "'zz' is neither a layout (nn, nt, tn, tt) nor a distribution (rand, randn)"),
    ],
)
def test_what_is_not_understood_is_named(text, said):
    with pytest.raises(ValueError) as refused:
        sizes.parse(text, distribution=("rand", "randn"))
    assert said in str(refused.value)


def test_bench_takes_axes():
    assert suite.parse("16/128x4096x512..1024:nn/nt,7:rand")[0] == [
        *(Case(m, n, 4096, layout) for m in (16, 128) for n in (512, 1024) for layout in ("nn", "nt")),
        Case(7, 7, 7, "nn", "rand"),
    ]
    with pytest.raises(ValueError, match="'0/4': there is nothing to time in a size of 0"):
        suite.parse("0/4")


def test_explain_takes_axes_and_export_a_product_alone(monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    done = CliRunner().invoke(app, ["explain", "512..1024x64x64:nt/tt", "--kernel", "simt"])
    heads = [line.partition(", layout ") for line in done.output.splitlines() if line.startswith("gemm")]
    assert [(head[0].split(), head[2][:2]) for head in heads] == [
        (["gemm", f"M={m}", "N=64", "K=64"], layout) for m in (512, 1024) for layout in ("nt", "tt")
    ]
    square = CliRunner().invoke(app, ["export", "96:tt", "--kernel", "simt"])
    assert "mm32 export 96x96x96:tt --kernel simt" in square.output
    refused = CliRunner().invoke(app, ["export", "64..128:tt"])
    assert refused.exit_code == 2
    assert "64..128:tt has 2 products; a file is written for one" in refused.output
