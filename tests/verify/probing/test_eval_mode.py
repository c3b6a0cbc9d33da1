"""What the verdict's line says of `eval()`, which no trial calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mm32.verify import Verdict, verify
from mm32.verify.probing.eval_mode import SAYS
from support.verify import in_process

Compare = Callable[..., tuple[str, list[str]]]
INPUTS = "\n\ndef get_inputs():\n    return [torch.randn(64, 32) + 1]\n"
HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"


def script(name: str, forward: str, layers: str = "self.norm = nn.BatchNorm1d(32)") -> str:
    return (
        f"{HEAD}class {name}(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {layers}\n\n"
        f"    def forward(self, x):\n        {forward}\n"
    )


@pytest.fixture
def compared(tmp_path: Path) -> Compare:
    def go(forward: str, candidate: str, layers: str = "self.norm = nn.BatchNorm1d(32)") -> tuple[str, list[str]]:
        (tmp_path / "r.py").write_text(script("Model", forward, layers) + INPUTS)
        (tmp_path / "c.py").write_text(script("ModelNew", candidate, layers))
        verdict, why, report = in_process.compare(tmp_path / "r.py", tmp_path / "c.py", trials=1)
        return verdict if verdict == "SAME" else f"{verdict}: {why}", report.left_out  # type: ignore[attr-defined]

    return go


ALWAYS_TRAINING = (
    "self.norm.num_batches_tracked += 1; "
    "return F.batch_norm(x, self.norm.running_mean, self.norm.running_var, self.norm.weight, self.norm.bias, True)"
)


def test_the_line_says_that_a_model_is_another_one_in_evaluation(compared: Compare) -> None:
    verdict, left_out = compared("return self.norm(x)", ALWAYS_TRAINING)
    assert verdict == "SAME"
    assert SAYS in left_out


@pytest.mark.parametrize(
    ("forward", "layers"),
    [
        ("return self.a(x)", "self.a = nn.Linear(32, 8)"),
        (
            "return self.a(x.view(8, 8, 32))",
            "self.a = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)",
        ),
        ("return F.dropout(x, 0.0, self.training) @ torch.ones(32, 3)", "pass"),
    ],
    ids=["no mode", "another way to the same", "no rate"],
)
def test_nothing_is_said_where_eval_changes_nothing_but_rounding(compared: Compare, forward: str, layers: str) -> None:
    verdict, left_out = compared(forward, forward, layers)
    assert verdict == "SAME"
    assert SAYS not in left_out


FOLDS = """self.norm = nn.BatchNorm1d(32)
        self.folded = None

    def train(self, mode=True):
        if not mode:
            self.folded = (self.norm.weight / (self.norm.running_var + 1e-5).sqrt()).detach()
        return super().train(mode)"""
FOLDED = "return self.norm(x) if self.folded is None else x * self.folded"


def test_a_reference_whose_train_does_more_is_as_before(compared: Compare, tmp_path: Path) -> None:
    verdict, left_out = compared(FOLDED, "return self.norm(x)", FOLDS)
    assert verdict == "SAME"
    assert SAYS in left_out
    found = verify(tmp_path / "r.py", tmp_path / "c.py", trials=1)
    assert found.verdict in (Verdict.FASTER, Verdict.INCONCLUSIVE, Verdict.SLOWER), found.reason
