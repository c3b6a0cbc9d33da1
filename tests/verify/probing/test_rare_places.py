"""Integers beside equal entries, the sides of edges, places that low bits decide, entries at strides, small parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from mm32.verify.inputs import contents, variations
from support.verify.shortcuts import check_shortcut

Compare = Callable[..., tuple[str, str, Any]]
EDGES = "self.register_buffer('e', torch.linspace(-2, 2, 17))"
OVER = "o = x > x.mean(1, keepdim=True) + x.std(1, keepdim=True)"
SHORTCUTS: dict[str, tuple[str, str, str, str, str]] = {
    "the sign of 0": (
        "return torch.sign(x).to(torch.int8)",
        "return torch.where(x >= 0, 1, -1).to(torch.int8)",
        "[torch.randn(64, 48)]",
        "pass",
        "zero rows",
    ),
    "a count of what is not 0": (
        "return (x != 0).sum(1)",
        "return (x * 0 + 1).sum(1).long()",
        "[torch.randn(64, 48)]",
        "pass",
        "zero rows",
    ),
    "the other side of an edge": (
        "return torch.bucketize(x, self.e)",
        "return torch.bucketize(x, self.e, right=True)",
        "[torch.randn(64, 48)]",
        EDGES,
        "edges",
    ),
    "the other side of a number": (
        "return torch.where(x > 0.75, x, 0)",
        "return torch.where(x >= 0.75, x, 0)",
        "[torch.randn(64, 48)]",
        "pass",
        "edges",
    ),
    "no place": (
        f"{OVER}; return torch.where(o.any(1), o.int().argmax(1), -1)",
        f"{OVER}; return o.int().argmax(1)",
        "[torch.randn(64, 256)]",
        "pass",
        "zero rows",
    ),
    "a choice in bfloat16": (
        "return x.argmax(1)",
        "i = x.bfloat16().topk(16, dim=1).indices; return i.gather(1, x.gather(1, i).argmax(1, keepdim=True))[:, 0]",
        "[torch.randn(64, 4096)]",
        "pass",
        "distinct",
    ),
    "the four largest of each residue class": (
        "return x.topk(8).values",
        "return x.view(64, -1, 64).topk(4, dim=1).values.flatten(1).topk(8).values",
        "[torch.randn(64, 4096)]",
        "pass",
        "odd rows",
    ),
    "an epsilon beside a parameter": (
        "return x * self.w / (self.w.square().mean() + 1e-8).sqrt()",
        "return x * self.w / self.w.square().mean().sqrt()",
        "[torch.randn(64, 48)]",
        "self.w = nn.Parameter(torch.rand(48) + 0.5)",
        "small parameters",
    ),
}


@pytest.mark.parametrize("name", SHORTCUTS)
def test_a_shortcut_shows_by_its_probe(name: str, verdict: Compare) -> None:
    right, wrong, inputs, init, probe = SHORTCUTS[name]
    check_shortcut(verdict, right, wrong, inputs, "x", init, probe)


def test_the_place_of_one_of_several_equal_entries_is_anybodys(verdict: Compare) -> None:
    last = "n = x.shape[1] - 1; return n - x.flip(1).argmax(1)"
    got, reason, _ = verdict("return x.argmax(1)", last, "[torch.randn(64, 256)]")
    assert got == "SAME", reason


def drawn() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def test_what_the_probes_data_are() -> None:
    x = torch.randn(33, 1024)
    (distinct,) = variations.fill("distinct", [x], drawn())
    assert distinct.unique().numel() == x.numel()  # type: ignore[attr-defined]
    (odd,) = variations.fill("odd rows", [x], drawn())
    assert isinstance(odd, torch.Tensor)
    below, ordered = (odd < 0).all(1), (odd.diff() >= 0).all(1) | (odd.diff() <= 0).all(1)
    assert below.sum() >= 11
    assert ordered.sum() >= 11
    others = odd[~below & ~ordered]
    counts = {int((row > 4 * contents.size_of(x) - 1e-3).sum()) for row in others}
    assert counts >= {1024 // 2**i for i in range(2, 7)}
    (clustered,) = variations.fill("clustered", [x], drawn())
    assert isinstance(clustered, torch.Tensor)
    apart = torch.cdist(clustered, x).amin(1) / 1024**0.5
    assert bool((apart < 2.0**-4).all())
    assert len({int(row) for row in torch.cdist(clustered, x).argmin(1)}) <= 6
    edges = torch.tensor([0.25, 7.0])
    (on,) = variations.on_edges([x], drawn(), edges)
    assert isinstance(on, torch.Tensor)
    share = torch.isin(on, edges).float().mean()
    assert 0.2 < share < 0.3
    with pytest.raises(contents.CannotVary):
        variations.on_edges([torch.zeros(4, dtype=torch.int64)], drawn(), edges)
