"""The pictures of an output's errors: maps and histograms, held to what the judge measures and to plain loops."""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from mm32.verify.exchange import wire
from mm32.verify.judging import picture
from mm32.verify.judging.bounds import Truth
from mm32.verify.judging.judge import judge
from support.verify import in_process
from support.verify.fixtures import REFERENCE, forward

U = 2.0**-24
CELLS = picture.SIDE


def truth_of(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, path: str = "output", **fields: Any) -> Truth:
    torch.manual_seed(len(shape))
    exact = torch.randn(shape, dtype=torch.float64)
    return Truth(path, exact.to(dtype), exact, k=64, **fields)


def paint(got: Any, truth: Truth) -> dict[str, Any]:
    (made,) = picture.paint(got, [truth], judge(got, [truth]), "trial 1")["outputs"]
    assert sum_of(made["histogram"]["candidate"]) + made["odd"] == made["entries"] == truth.reference.numel()
    if made["histogram"]["reference"] is not None:
        counted = sum_of(made["histogram"]["reference"])
        assert counted == made["entries"] if made["entries"] <= picture.WHOLE else counted > made["entries"] / 9
    return made


def sum_of(histogram: dict[str, Any]) -> int:
    assert len(histogram["bins"]) == picture.HIGHEST - picture.LOWEST + 1
    return histogram["exact"] + sum(histogram["bins"])


def codes(made: dict[str, Any]) -> torch.Tensor:
    return torch.tensor(list(base64.b64decode(made["map"]))).reshape(made["cells"])


def plainly(got: torch.Tensor, truth: Truth, made: dict[str, Any]) -> torch.Tensor:
    """Return the map's codes, found by a loop over its cells."""
    ratio = (got.double() - truth.exact).abs() / (
        (truth.exact.abs() + truth.exact.square().mean().sqrt()) * U * truth.own()[1].componentwise
    )
    flat = ratio.reshape(math.prod(ratio.shape[: made["split"]]), -1)
    (high, wide), (down, across) = made["cell"], made["cells"]
    found = torch.zeros(down, across, dtype=torch.int64)
    for i in range(down):
        for j in range(across):
            worst = float(flat[i * high : (i + 1) * high, j * wide : (j + 1) * wide].max())
            found[i, j] = math.ceil(picture.STEPS * math.log2(worst)) + picture.BOUND if worst > 0 else 0
    return found


@pytest.mark.parametrize(
    ("shape", "split", "cell", "cells"),
    [
        ((), 0, [1, 1], [1, 1]),
        ((7,), 0, [1, 1], [1, 7]),
        ((1, 7, 1), 0, [1, 1], [1, 7]),
        ((1500,), 0, [1, 3], [1, 500]),
        ((5, 3), 1, [1, 1], [5, 3]),
        ((130, 257), 1, [2, 3], [65, 86]),
        ((129, 2), 1, [2, 1], [65, 2]),
        ((3, 40, 50), 2, [1, 1], [120, 50]),
        ((6, 5, 10, 9), 2, [1, 1], [30, 90]),
        ((2, 300000), 1, [1, 2344], [2, 128]),
        ((300000, 2), 1, [2344, 1], [128, 2]),
        ((1500, 1200), 1, [12, 10], [125, 120]),
    ],
)
def test_a_map_is_of_the_worst_entry_of_each_cell(
    shape: tuple[int, ...], split: int, cell: list[int], cells: list[int]
) -> None:
    truth = truth_of(shape)
    got = truth.reference * (1 + 7 * U * torch.rand(shape))
    made = paint(got, truth)
    assert (made["split"], made["cell"], made["cells"]) == (split, cell, cells)
    assert (codes(made) - plainly(got, truth, made)).abs().max() == 0
    assert made["largest"] == pytest.approx(judge(got, [truth]).errors.componentwise / made["bound"], rel=1e-12)
    assert made["wrong"] == 0
    assert max(made["cells"]) <= 512
    assert math.prod(made["cells"]) <= CELLS * CELLS


@pytest.mark.parametrize("most", [1, 10, 100, 10**6])
@pytest.mark.parametrize(
    "size", [(1, 1, 1, 1), (1, 50, 1, 7), (10, 10, 1, 1), (13, 29, 3, 4), (40, 6, 7, 2), (9, 100, 2, 9)]
)
def test_blocks_cover_a_matrix_once_and_keep_to_cells(size: tuple[int, int, int, int], most: int) -> None:
    rows, columns, high, wide = size
    seen = torch.zeros(rows, columns)
    for top, bottom, left, right in picture.blocks(rows, columns, high, wide, most):
        seen[top:bottom, left:right] += 1
        assert left % wide == 0
        assert top // high == (bottom - 1) // high or top % high == 0
    assert (seen == 1).all()


def test_a_ratio_of_one_is_the_bound_and_any_above_is_beyond() -> None:
    ratios = torch.tensor([0.0, 1e-300, 2.0**-2, 1.0, 1 + 2**-50, 2.0, 1e300, math.inf, math.nan], dtype=torch.float64)
    assert picture.codes(ratios).tolist() == [0, 1, 120, 128, 129, 132, 253, 253, 255]


def test_the_histograms_bins_have_ratios_up_to_powers_of_two() -> None:
    ratios = torch.tensor(
        [0.0, 1e-30, 0.5, 0.5000001, 1.0, 1.0000002, 2.0, 1e30, math.inf, math.nan], dtype=torch.float64
    )
    found, odd = picture._histogram(picture._bins(ratios))
    at = {i + picture.LOWEST: n for i, n in enumerate(found["bins"]) if n}
    assert (found["exact"], odd) == (1, 1)
    assert at == {picture.LOWEST: 1, -1: 1, 0: 2, 1: 2, picture.HIGHEST: 2}


def test_a_tile_that_is_left_out_is_where_it_is() -> None:
    truth = truth_of((300, 300))
    got = truth.reference.clone()
    got[96:128, 160:224] = 0
    made = paint(got, truth)
    beyond = (codes(made) > picture.BOUND).nonzero()
    assert (made["wrong"], made["odd"], made["against"]) == (32 * 64, 0, "componentwise")
    assert [beyond.min(0).values.tolist(), beyond.max(0).values.tolist()] == [[32, 53], [42, 74]]
    assert sum(made["histogram"]["candidate"]["bins"][1 - picture.LOWEST :]) == 32 * 64
    assert not any(made["histogram"]["reference"]["bins"][1 - picture.LOWEST :])


def test_nan_and_inf_in_the_wrong_place_are_odd_and_in_the_right_one_nothing() -> None:
    truth = truth_of((40, 50))
    truth.exact[3, 4] = truth.reference[3, 4] = math.inf
    truth.exact[5, 6] = truth.reference[5, 6] = math.nan
    right = truth.reference.clone()
    assert paint(right, truth)["odd"] == 0
    wrong = right.clone()
    wrong[0, 0], wrong[3, 4], wrong[39, 49] = math.nan, -math.inf, math.inf
    made = paint(wrong, truth)
    assert (made["odd"], made["wrong"]) == (3, 3)
    assert (codes(made) == picture.DIFFERS).nonzero().tolist() == [[0, 0], [3, 4], [39, 49]]
    finite = right.clone()
    finite[3, 4] = 1.0
    assert (codes(paint(finite, truth)) == picture.DIFFERS).nonzero().tolist() == [[3, 4]]


def test_other_rules_than_the_bounds() -> None:
    exact = truth_of((20, 30)).reference
    for fields in ({"bitwise": True}, {"relative": 4 * U}):
        truth = Truth("output", exact, **fields)
        wrong = exact.clone()
        wrong[7, 8] *= 1 + 2**-8
        assert paint(exact.clone(), truth)["wrong"] == 0
        made = paint(wrong, truth)
        assert (made["wrong"], made["truth"], made["histogram"]["reference"]) == (1, "reference", None)
        assert (codes(made) > picture.BOUND).nonzero().tolist() == [[7, 8]]
    truth = Truth("output", torch.arange(600).reshape(20, 30))
    wrong = truth.reference.clone()
    wrong[19, 29] += 1
    made = paint(wrong, truth)
    assert (made["against"], made["odd"], made["dtype"]) == ("equality", 1, "int64")


def test_where_only_the_whole_is_beyond_its_bound_the_picture_is_of_the_whole() -> None:
    exact = torch.full((64, 64), 1.0, dtype=torch.float64)
    truth = Truth("output", exact.float(), exact, k=1)
    bounds = truth.own()[1]
    got = (exact * (1 + 1.5 * bounds.normwise)).float()
    result = judge(got, [truth])
    assert not result.same
    assert result.errors.componentwise <= bounds.componentwise
    made = paint(got, truth)
    assert (made["against"], made["wrong"]) == ("normwise", 64 * 64)
    assert made["largest"] == pytest.approx(result.errors.normwise / bounds.normwise)


def test_without_all_rows_of_the_truth_the_reference_is_the_truth() -> None:
    truth = truth_of((64, 8))
    sliced = Truth("output", truth.reference, truth.exact[::16], k=64, rows=torch.arange(0, 64, 16))
    wrong = truth.reference.clone()
    wrong[5] = 7
    made = paint(wrong, sliced)
    assert (made["truth"], made["wrong"]) == ("reference", 8)
    assert (codes(made) > picture.BOUND).nonzero()[:, 0].unique().tolist() == [5]


@pytest.mark.parametrize("dtype", wire.DTYPES.values(), ids=wire.DTYPES.keys())
@pytest.mark.parametrize("shape", [(), (5, 6), (0, 4)])
def test_every_type_that_a_message_can_carry(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    plain = torch.ones(shape) * 3
    right = plain.to(dtype)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    truth = Truth("output", right, right.to(wide) if dtype.is_floating_point or dtype.is_complex else None)
    made = picture._output(right.clone(), truth, None)
    assert made["shape"] == list(shape)
    if 0 in shape:
        assert made["why_not"] == "it is empty"
    else:
        assert (made["wrong"], made["entries"]) == (0, plain.numel())


def test_strides_do_not_matter() -> None:
    truth = truth_of((30, 50))
    got = truth.reference.clone()
    got[3, 40] = 9
    turned = got.T.contiguous().T
    assert not turned.is_contiguous()
    assert paint(turned, truth) == paint(got, truth)


def test_several_tensors_and_what_is_none() -> None:
    truths = [truth_of((4,), path=f"output[{i}]") for i in range(11)]
    got = [t.reference.clone() for t in truths]
    got[10] = got[10] + 1
    made = picture.paint(got, truths, judge(got, truths), "trial 2")
    assert [one["path"] for one in made["outputs"]] == [*(f"output[{i}]" for i in range(7)), "output[10]"]
    assert (made["of"], made["same"], made["left_out"]) == ("trial 2", False, 3)
    assert [one["wrong"] for one in made["outputs"]] == [0] * 7 + [4]

    truths = [Truth("output[0]", 2.0, 2.0), Truth("output[1]", "relu"), truth_of((3,), path="output[2]")]
    values = [2.5, "relu", torch.zeros(4)]
    made = picture.paint(values, truths, judge(values, truths), "trial 1")
    assert made["outputs"][0]["wrong"] == 1
    assert [one.get("why_not") for one in made["outputs"]] == [
        None,
        "it is no tensor",
        "its shape or type is not the reference's",
    ]
    assert picture.paint([1.0], truths, judge([1.0], truths), "trial 1")["outputs"] == []


def test_the_first_output_is_drawn_or_else_the_first_that_differs(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(REFERENCE)
    for body, of, same in (
        ("return torch.relu(A.T @ B.T)", "trial 1", True),
        ("return A.T @ B.T", "probe randn", False),  # positive data give nothing below zero
        ("return torch.relu(A.T @ B.T) * 2", "trial 1", False),
    ):
        (tmp_path / "candidate.py").write_text(forward(body))
        _, _, report = in_process.compare(tmp_path / "reference.py", tmp_path / "candidate.py", trials=2)
        assert report.picture is not None
        assert (report.picture["of"], report.picture["same"]) == (of, same)
        (drawn,) = report.picture["outputs"]
        assert bool(drawn["wrong"]) == (not same)
