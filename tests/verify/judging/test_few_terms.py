"""What honest rounding may do where sums have few terms (few_terms.py), and the data with such sums (isolating.py)."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mm32.verify.compare import Comparison
from mm32.verify.inputs import isolating
from mm32.verify.inputs.contents import CannotVary
from mm32.verify.judging.bounds import U32
from mm32.verify.judging.few_terms import FewTerms
from mm32.verify.judging.judge import judge
from support.verify.entries import ENTRIES
from support.verify.in_process import Bench, compare

NORMAL = torch.randn(64, 512, generator=torch.Generator().manual_seed(2))


def perturbed(f: Callable[..., Tensor], *args: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return the float64 result, how far the perturbed run is from it, in u, and how many additions round."""
    given = [t.double() if t.is_floating_point() else t for t in args]
    clean = FewTerms()
    with clean:
        right = f(*given)
    mode = clean.again(U32, 1, "cpu")
    with mode:
        moved = f(*given)
    return right, (moved - right).abs() / U32, mode.additions


def one_of(n: int) -> Tensor:
    x = torch.zeros(8, n)
    x[:, n // 3] = torch.rand(8, generator=torch.Generator().manual_seed(n)) + 1
    return x


def test_sums_of_one_term_and_of_small_integers_are_exact_in_any_order() -> None:
    integers = torch.randint(-9, 10, (8, 4096)).float()
    for x in (one_of(4096), integers):
        for f in (lambda x: x.sum(1), lambda x: x.cumsum(1)):
            _, off, additions = perturbed(f, x)
            assert additions == 0
            assert float(off.max()) == 0
    _, off, additions = perturbed(lambda x: x.sum(1), torch.full((8, 4096), 1 / 3))
    assert additions == 4095
    assert float(off.max()) > 1e5, "equal terms are rounded alike: the bound is their number, not its square root"


def test_what_is_negligible_beside_the_sum_does_not_count() -> None:
    x = one_of(4096) + 1e-12
    assert perturbed(lambda x: x.sum(1), x)[2] < 0.1
    assert perturbed(lambda x: x.sum(1), x + 1e-3)[2] == 4095


def test_a_serial_sum_of_equal_terms_is_as_far_off_as_the_bound_says_and_no_further() -> None:
    """That is why bounds are linear in the number of additions."""
    for value in (1 / 3, 6.907755, 0.1):
        x = torch.full((4096,), value)
        total = torch.zeros(())
        for term in x:
            total = total + term
        error = abs(float(total) - float(x.double().sum())) / (U32 * float(x.double().sum()))
        assert 4 < error < 4095, error


def test_equal_terms_are_judged_in_timed_calls_as_in_their_probe(tmp_path: Path) -> None:
    """Equal losses of all rows, added up in order, are further off than a perturbed run allows."""
    reference, candidate = tmp_path / "reference.py", tmp_path / "candidate.py"
    script = """
import torch
from torch import nn


class {}(nn.Module):
    def forward(self, x, labels):
        {}


def get_inputs():
    return [torch.randn(4096, 8), torch.randint(0, 8, (4096,))]
"""
    reference.write_text(script.format("Model", "return torch.nn.functional.cross_entropy(x, labels)"))
    rows = "rows, total = torch.nn.functional.cross_entropy(x, labels, reduction='none'), torch.zeros(())"
    candidate.write_text(
        script.format("ModelNew", f"{rows}\n        for row in rows: total = total + row\n        return total / 4096")
    )
    bench = Bench(reference, candidate, 1, 1)
    comparison = Comparison(bench)  # type: ignore[arg-type]
    comparison.load_reference()
    comparison.load_candidate()
    comparison.run()
    (found,) = (odd for odd in comparison.passed if odd.name == "times 1e-7")
    comparison.inputs = found.inputs
    comparison.reference.ask("set_inputs", found.inputs, names=comparison.names)
    comparison.forward(0)
    comparison.give(found.inputs)
    got = comparison.output(0)
    assert not judge(got, bench.truth.of(0, comparison.right)).same, "else it shows nothing"
    assert judge(got, found.truths(0, comparison.right)).same


def test_what_a_mask_makes_infinite_is_not_perturbed() -> None:
    """Otherwise the perturbed run of attention behind a mask would be NaN, which allows nothing."""

    def masked(s: torch.Tensor) -> torch.Tensor:
        return torch.softmax(s.masked_fill(torch.ones(16, 16, dtype=torch.bool).triu(1), -math.inf), -1)

    _, off, _ = perturbed(masked, torch.randn(16, 16, generator=torch.Generator().manual_seed(5)))
    assert bool(off.isfinite().all())
    assert float(off.max()) > 0


def test_products_count_the_terms_that_are_not_zero() -> None:
    a, b = one_of(300), torch.randn(300, 16, generator=torch.Generator().manual_seed(5))
    right, off, additions = perturbed(torch.matmul, a, b)
    assert additions == 1, "the product's own rounding"
    assert float((off / right.abs()).max()) <= 3
    image, weight = torch.zeros(1, 4, 12, 12), torch.randn(2, 4, 3, 3)
    image[0, 1, 5, 5] = 1.7
    assert perturbed(torch.conv2d, image, weight)[2] == 1
    assert perturbed(torch.conv2d, torch.randn(1, 4, 12, 12), weight)[2] > 30


def test_exponentials_of_zero_and_their_logarithms_are_exact() -> None:
    x = torch.full((512, 100), -64.0)
    x[:, 7] = 0
    labels = torch.full((512,), 7)
    right, off, _ = perturbed(lambda x: nn.functional.cross_entropy(x, labels), x)
    assert float(right) < 1e-20
    assert float(off) < 1e-10


@pytest.mark.parametrize("apart", [2, 5, 64])
def test_every_line_along_every_axis_has_its_share(apart: int) -> None:
    spread = isolating._spread(torch.zeros(64, 130, 65), apart, torch.Generator().manual_seed(0))
    for axis, size in enumerate(spread.shape):
        counts = spread.sum(axis)
        assert size // apart <= int(counts.min()) <= int(counts.max()) <= -(-size // apart)


def made(name: str, lengths: list[int], **more: object) -> list[object]:
    return isolating.fill(
        name,
        [NORMAL, torch.arange(64)],
        torch.Generator().manual_seed(3),
        lengths,
        bool(more.get("exponentials")),
        lambda: [torch.sign(NORMAL), None],
    )


def test_the_data_are_what_they_are_for() -> None:
    for name in ("impulses", "peaks", "pointers", "levels", "one row"):
        x, labels = made(name, [512], exponentials=True)
        assert isinstance(x, Tensor)
        assert isinstance(labels, Tensor)
        assert torch.equal(labels, torch.arange(64)), "labels stay as they are"
        counts = (x != 0).sum(1)
        if name == "impulses":
            assert 0 < int(counts.sum()) < 200
        elif name == "peaks":
            assert int((x > -1000).sum(1).min()) >= 3
        elif name == "pointers":
            assert bool((counts == 1).all())
        elif name == "levels":
            assert not bool(x.sum(1).any()), "means are zero"
            assert perturbed(lambda x: x.var(1), x)[2] == 0, "sums of squares are exact"
        else:
            assert int((x.abs() % 64 != 0).any(1).sum()) == 1


def test_what_has_no_data_or_no_derivatives_is_left_out() -> None:
    with pytest.raises(CannotVary, match="no input holds data"):
        isolating.fill("impulses", [torch.arange(9)], torch.Generator(), [9], False, list)
    with pytest.raises(CannotVary, match="no derivatives"):
        isolating.slopes(lambda flat: [t.detach().sum() for t in flat if isinstance(t, Tensor)], [NORMAL])
    (slope,) = isolating.slopes(lambda flat: [(t * t).sum() for t in flat if isinstance(t, Tensor)], [NORMAL])
    assert slope is not None
    assert torch.equal(slope, 2 * NORMAL)


def test_thin_weights_keep_one_entry_a_row_and_their_size() -> None:
    model = nn.Sequential(nn.Conv2d(8, 16, 3), nn.Flatten(), nn.Linear(64, 10))
    before = [float(p.detach().norm()) for p in model.parameters() if p.dim() > 1]
    isolating.thin(model, torch.Generator().manual_seed(0))
    for p, size in zip((p for p in model.parameters() if p.dim() > 1), before, strict=True):
        assert bool(((p != 0).flatten(1).sum(1) == 1).all())
        assert size / 4 < float(p.detach().norm()) < 4 * size
    with pytest.raises(CannotVary):
        isolating.thin(nn.BatchNorm1d(4), torch.Generator())


def test_which_probes_fit_which_models() -> None:
    def fitting(*operators: str, products: int = 0, entries: int = 1000) -> set[str]:
        names = [v.name for v in isolating.ISOLATING]
        return {n for n in names if isolating.fits(n, operators, [512], products, entries)}

    assert fitting("aten::cumsum") == {"impulses"}
    assert fitting("aten::convolution", products=1) == {"impulses", "thin"}
    assert fitting("aten::_softmax") == {"peaks"}
    assert fitting("aten::native_layer_norm") == {"levels"}
    assert fitting("aten::bmm", "aten::_softmax", products=2) == {"impulses", "pointers", "thin"}
    assert fitting("aten::_log_softmax", "aten::nll_loss_forward", entries=1) == {"one row"}
    assert not isolating.fits("impulses", ["aten::gelu"], [], 0, 1000), "nothing is summed"


SMALL = ("p_layers_pairs", "p_scan_pairs", "p_layers_in_pieces", "p_log_in_order")


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(e, marks=[pytest.mark.slow] if e.path.stem == "p_scan_pairs" else [], id=e.path.stem)
        for e in ENTRIES
        if e.path.stem in SMALL
    ],
)
def test_seventeen_bits_show_and_honest_kernels_pass(entry: object) -> None:
    from support.verify.entries import Entry

    assert isinstance(entry, Entry)
    verdict, why, report = compare(entry.reference, entry.path, 2)
    assert verdict == ("SAME" if entry.kind == "honest" else "DIFFERENT"), why
    if "pairs of bfloat16" in why:
        return  # refused before: its errors on its own data are those of this format
    assert report.precision is not None
    bits = report.precision["bits"]
    assert (bits == 24.0) if entry.kind == "honest" else (15 < bits < 20), bits
    if entry.kind == "cheats":
        assert "probe '" in why, "on its own data it is within the bounds of long sums"
