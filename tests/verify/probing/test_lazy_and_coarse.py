"""Models that are easily refused: lazy modules, autocast inside a model that returns fp32, and rounding that decides a result."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from mm32.verify.judging.bounds import NOISE_FACTOR, STEEP_AT_MOST, STEEP_FACTOR, Errors, Truth
from mm32.verify.judging.selftest import _one_wrong, _rounded
from mm32.verify.worker.runner import copy_state


def test_a_lazy_model_takes_the_references_state() -> None:
    """The state may have any shape, as a lazy model knows none before its first call."""
    reference = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))
    lazy = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    assert copy_state(lazy, reference.state_dict()) == []
    x = torch.randn(7, 5)
    torch.testing.assert_close(lazy(x), reference(x), rtol=0, atol=0)
    (problem,) = copy_state(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), reference.state_dict())
    assert problem == "its '0.weight' is (3, 4), the reference's is (3, 5)"


def test_the_self_test_is_made_for_the_coarsest_type_that_a_model_computes_in() -> None:
    t = torch.tensor([1.0, -3.0])
    assert _one_wrong(t)[1] == pytest.approx(-3.03)
    assert _one_wrong(t, u=2.0**-11)[1] == pytest.approx(-3.3)
    assert _one_wrong(t, u=2.0**-8)[1] == pytest.approx(-3.75)
    assert _one_wrong(t.double(), u=2.0**-24)[1] == pytest.approx(-3.03)
    assert _one_wrong(t.bfloat16(), u=2.0**-24)[1] == -3.75, "no finer than its own type"
    x = torch.tensor([1 + 2.0**-5])
    assert _rounded(x) == x, "8 bits hold it"
    assert _rounded(x, 2.0**-8) == 1


def test_where_rounding_decides_much_more_of_it_is_allowed() -> None:
    def bound(noise: float, steep: bool) -> float:
        t = torch.ones(4)
        truth = Truth("output", t, t.double(), noise=Errors(noise, noise / 2.0**-24), steep=steep)
        return truth.own()[1].normwise

    assert bound(1e-3, steep=False) == pytest.approx(NOISE_FACTOR * 1e-3)
    assert bound(1e-3, steep=True) == pytest.approx(NOISE_FACTOR * STEEP_FACTOR * 1e-3)
    assert bound(1e-5, steep=True) < 1.2 * NOISE_FACTOR * 1e-5, "next to nothing where it decides little"
    assert bound(1e-2, steep=True) == STEEP_AT_MOST
    assert bound(0.2, steep=True) == pytest.approx(NOISE_FACTOR * 0.2)


REFERENCE = """import torch
from torch import nn


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.LazyConv2d(8, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4))

    def forward(self, x):
        return self.net(x{layout})


def get_inputs():
    return [torch.randn(4, 3, 10, 10)]
"""


@pytest.mark.slow
def test_a_lazy_model_is_the_same(tmp_path: Path) -> None:
    from mm32 import verify

    reference, candidate = tmp_path / "reference.py", tmp_path / "candidate.py"
    reference.write_text(REFERENCE.format(name="Model", layout=""))
    candidate.write_text(REFERENCE.format(name="ModelNew", layout=" + 0"))
    report = verify.verify(reference, candidate)
    assert report.verdict.same, report.reason
