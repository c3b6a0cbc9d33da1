"""Operators taken apart into simpler ones give the operators' own results, without torch's symbolic shapes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from mm32.verify.judging import composites

aten = torch.ops.aten
X = torch.randn(6, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
IMAGES = torch.randn(3, 8, 4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
WEIGHT = torch.rand(10, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
LABELS = torch.tensor([3, 0, 9, -100, 2, 2])
HOLE = X.masked_fill(torch.arange(10) % 3 == 0, -torch.inf)
HOLE[0] = -torch.inf
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "softmax": (aten._softmax, (X, 1, False)),
    "softmax of columns": (aten._softmax, (X.t(), -1, False)),
    "log_softmax": (aten._log_softmax, (X, 0, False)),
    "log_softmax of channels-last images": (
        aten._log_softmax,
        (IMAGES.to(memory_format=torch.channels_last), 1, False),
    ),
    "logsumexp": (aten.logsumexp, (X, [1])),
    "logsumexp of all": (aten.logsumexp, (X, [0, 1], True)),
    "logsumexp of -Inf": (aten.logsumexp, (HOLE, [1])),
    "layer norm": (aten.native_layer_norm, (X, [10], WEIGHT, WEIGHT + 1, 1e-5)),
    "layer norm of two axes": (aten.native_layer_norm, (IMAGES, [4, 5], None, None, 1e-5)),
    "layer norm with a bias": (aten.native_layer_norm, (X, [10], None, WEIGHT, 1e-5)),
    "group norm": (aten.native_group_norm, (IMAGES, WEIGHT[:8], WEIGHT[2:], 3, 8, 20, 4, 1e-5)),
    "group norm, plain": (aten.native_group_norm, (IMAGES, None, None, 3, 8, 20, 2, 1e-5)),
    "group norm of rows": (aten.native_group_norm, (X, WEIGHT, None, 6, 10, 1, 5, 1e-5)),
    **{
        f"nll {reduction} {weight is not None} {ignored}": (
            aten.nll_loss_forward,
            (X, LABELS.clamp_min(ignored), weight, reduction, ignored),
        )
        for reduction in (0, 1, 2)
        for weight in (None, WEIGHT)
        for ignored in (-100, 0)
    },
    "nll of bytes": (aten.nll_loss_forward, (X, LABELS.clamp_min(0).to(torch.uint8), None, 1, -100)),
    "nll of one": (aten.nll_loss_forward, (X[0], torch.tensor(4), WEIGHT, 1, -100)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_sequence_gives_what_its_operator_gives(name: str) -> None:
    packet, args = CASES[name]
    apart = composites.sequence(packet.default, args)
    assert apart is composites.OWN[packet.__name__]
    made, right = apart(*args), packet.default(*args)
    made, right = ((one,) if isinstance(one, Tensor) else one for one in (made, right))
    for a, b in zip(made, right, strict=True):
        assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride())
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_half_precision_and_nothing_go_by_torchs_own_sequences() -> None:
    for x in (X.half(), X.bfloat16(), X[:0]):
        apart = composites.sequence(aten._softmax.default, (x, 1, False))
        assert apart is not None
        assert apart is not composites.OWN["_softmax"]
        assert apart(x, 1, False).shape == x.shape
    assert composites.sequence(aten.mm.default, (X, X)) is None


def test_the_truth_of_usual_models_imports_no_computer_algebra() -> None:
    code = """
import sys
import torch
from torch import nn
from mm32.verify.judging import exact
from mm32.verify.judging.rounding import Rounding
from mm32.verify.reference import ReferenceRunner
model = nn.Sequential(nn.Conv1d(8, 8, 1), nn.BatchNorm1d(8), nn.GroupNorm(2, 8), nn.Flatten(), nn.LayerNorm(32), nn.Softmax(-1))
x = torch.rand(4, 8, 4)
with torch.no_grad():
    exact.run(model, [x], [], model(x), 2.0**-24, 0)
sys.exit("sympy" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
