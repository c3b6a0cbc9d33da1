"""What the verdict's line says of `eval()`, which no trial calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

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


def test_a_candidate_that_ignores_eval_is_same_and_the_line_says_so(compared: Compare) -> None:
    verdict, left_out = compared("return self.norm(x)", ALWAYS_TRAINING)
    assert verdict == "SAME"
    assert SAYS in left_out


@pytest.mark.parametrize(
    ("forward", "candidate", "layers"),
    [
        ("return self.norm(x)", "return self.norm(x * 1.0)", "self.norm = nn.BatchNorm1d(32)"),
        ("return self.a(x)", "return F.linear(x, self.a.weight, self.a.bias)", "self.a = nn.Linear(32, 8)"),
    ],
    ids=["follows", "no mode"],
)
def test_nothing_is_said_where_it_follows_or_eval_changes_nothing(
    compared: Compare, forward: str, candidate: str, layers: str
) -> None:
    verdict, left_out = compared(forward, candidate, layers)
    assert verdict == "SAME"
    assert SAYS not in left_out


def test_one_that_raises_there_is_not_refused(compared: Compare) -> None:
    verdict, left_out = compared("return self.norm(x)", "assert self.training; return self.norm(x)")
    assert verdict == "SAME"
    assert SAYS in left_out
