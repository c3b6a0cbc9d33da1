"""What the tests over several ranks share, on the CPU and on cards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from mm32 import nn as layers
from support import example_scripts

U = 2.0**-24


def close(got: torch.Tensor, wanted: torch.Tensor, tolerance: float = 1e-5) -> None:
    got = got.full_tensor() if hasattr(got, "full_tensor") else got
    error = float((got.detach().double() - wanted.detach().double()).norm() / (wanted.detach().double().norm() + 1e-30))
    assert error <= tolerance, f"{error:g}"


def counted_packs() -> list[tuple]:
    """Return a list that receives the shapes that layers pack from now on."""
    seen, before = [], layers.pack

    def counted(b: torch.Tensor) -> Any:
        packed = before(b)
        seen.append(tuple(packed.shard.source.shape if packed.shard is not None else b.shape))
        return packed

    layers.pack = counted
    return seen


SCRIPTS = Path(__file__).parents[2] / "examples" / "distributed"


def example(name: str) -> Any:
    return example_scripts.load(SCRIPTS / f"{name}.py")
