"""Fixtures of tests of batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.verify.fixtures import REFERENCE, RIGHT, forward


@pytest.fixture
def no_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def scripts(tmp_path: Path) -> tuple[Path, Path]:
    """Return a reference, and a folder with two candidates."""
    folder = tmp_path / "candidates"
    folder.mkdir()
    (tmp_path / "reference.py").write_text(REFERENCE)
    (folder / "a.py").write_text(RIGHT)
    (folder / "b.py").write_text(forward("return torch.zeros(64, 96)"))
    return tmp_path / "reference.py", folder


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """Return the folder of a KernelBench run, with two of the three problems of one level."""
    problems = tmp_path / "KernelBench" / "level1"
    problems.mkdir(parents=True)
    for name in ("1_Product.py", "2_Other.py", "10_More.py"):
        (problems / name).write_text(REFERENCE)
    made = tmp_path / "runs" / "mine"
    made.mkdir(parents=True)
    for problem, sample, source in ((1, 0, RIGHT), (1, 1, forward("return torch.zeros(64, 96)")), (10, 0, "def (")):
        (made / f"level_1_problem_{problem}_sample_{sample}_kernel.py").write_text(source)
    (made / "eval_results.json").write_text("{}")
    return made
