"""The examples that come with mm32, by short names; and `mm32 demo`: one of them verified, and what a GPU would add."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mm32.verify import Report

# On a CPU, the product that shows a card's speed takes two minutes, and probes are left out to save time. The small one has all
# probes.
ON_CPU, ON_CARD = "small", "tt"

# A test compares the figures of the H200 in this text with benchmarks/results/nvidia-h200/main.json.
WITHOUT_A_CARD = """\
What a GPU would add
  No GPU was found. On a CPU mm32 calls torch's own product, so both sides above ran the same code:
  the page shows how a claim about a kernel is checked, and no gain. With a card `mm32 demo` verifies
  what mm32.matmul does there for 2048 x 8192 x 4096. On an NVIDIA H200 that is its own kernel:
  4 times as fast as torch in fp32, with a smaller error.
  Your own kernel: mm32 verify reference.py candidate.py; step by step in the source's docs/first.md"""
WITH_A_CARD = """\
What ran
  The reference is torch's fp32 product, the candidate what mm32.matmul does on this card.
  Which kernel, why: mm32 explain 2048x8192x4096:tt
  Other sizes:       mm32 bench
  Your own kernel:   mm32 verify reference.py candidate.py; step by step in the source's docs/first.md"""


def folder() -> Path:
    """The folder of the examples: inside an installed mm32, or beside src/ in a checkout."""
    package = Path(__file__).resolve().parent
    inside = package / "examples"
    return inside if inside.is_dir() else package.parents[1] / "examples"


def names() -> dict[str, Path]:
    """The examples that `mm32 verify` takes as references: tt, nt, tn, nn (products in these layouts), tt_relu, ..."""
    return {path.stem.removeprefix("matmul_"): path for path in sorted(folder().glob("*.py"))}


def example(name: str) -> Path:
    """The script of that example. Raises ValueError, which lists the known names, for any other name."""
    known = names()
    if name not in known:
        raise ValueError(f"there is no example {name!r}: there are {', '.join(known) or f'none in {folder()}'}")
    return known[name]


def run(progress: Callable[[str], None] | None = None) -> tuple[Report, str]:
    """Verify mm32's own kernel on an example that suits this machine. Returns the report, and a text to show below its page."""
    import torch

    from mm32.verify import verify

    card = torch.cuda.is_available()
    report = verify(example(ON_CARD if card else ON_CPU), kernel="auto", progress=progress)
    return report, WITH_A_CARD if card else WITHOUT_A_CARD
