"""Candidates that take a shortcut, as text, and the verdict on one, found in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.verify import in_process

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n"


ROWS = "[torch.randn(24, 512)]"


def script(name: str, forward: str, inputs: str, init: str = "pass", arguments: str = "x") -> str:
    return (
        f"{HEAD}class {name}(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {init}\n\n"
        f"    def forward(self, {arguments}):\n        {forward}\n\ndef get_inputs():\n    return {inputs}\n"
    )


@pytest.fixture
def verdict(tmp_path: Path) -> Callable[..., tuple[str, str, Any]]:
    def go(right: str, other: str, inputs: str = ROWS, seed: int = 1, **more: str) -> tuple[str, str, Any]:
        (tmp_path / "reference.py").write_text(script("Model", right, inputs, **more))
        (tmp_path / "candidate.py").write_text(script("ModelNew", other, inputs, **more))
        return in_process.compare(tmp_path / "reference.py", tmp_path / "candidate.py", seed=seed)

    return go


def check_shortcut(
    verdict: Callable[..., tuple[str, str, Any]], right: str, wrong: str, inputs: str, arguments: str, init: str, probe: str
) -> None:  # fmt: skip
    """Assert that `wrong` differs from `right` by that probe, and that by that probe `right` is the same as itself."""
    got, reason, report = verdict(right, wrong, inputs, arguments=arguments, init=init)
    assert got == "DIFFERENT"
    assert probe in {p["name"] for p in report.probes if p["status"] == "different"}, reason
    got, reason, report = verdict(right, right, inputs, arguments=arguments, init=init)
    assert got == "SAME", reason
    assert probe in {p["name"] for p in report.probes if p["status"] == "same"}
