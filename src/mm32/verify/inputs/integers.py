"""Fresh integers and booleans for timed calls (indices, lengths, masks, images of bytes), from several results of get_inputs.

A fresh tensor takes each entry from one of two results, at the same place, so that it stays in the range that belongs to
this place. What the results have in common is kept: what is sorted stays sorted, a permutation stays one, and rows that all
have one sum keep it. Tensors with the same first axes take entries from the same result, because what lies side by side in
them may belong together: an edge's two ends, a sequence and its length. What is the same in all results is left as it is;
where possible, pools.py has put other entries into it before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .regrouped import are_distinct

LOOKED_AT = 1 << 20  # the most entries of a tensor in which structure is looked for
REPEATS = 3.0  # where chance would have made more pairs of equal entries than this, having none is no chance


@dataclass(frozen=True)
class Kind:
    """How a tensor's entries are mixed.

    `fixed`: they are not mixed. `shuffled`: rows of one result are put into another order along the last axis. Otherwise
    entries are taken from two results and, if `order` is "ascending" or "descending", sorted along the last axis. `shared`:
    entries at the same place along this many first axes come from the same result.
    """

    fixed: bool = False
    shuffled: bool = False
    order: str = ""
    shared: int = 0


def kinds(results: Sequence[Sequence[Tensor]]) -> list[Kind]:
    """Return the kind of each tensor of integers or booleans, from several results of get_inputs that have these tensors in
    the same order."""
    alone = [_kind([one[i] for one in results]) for i in range(len(results[0]))]
    shapes = [tuple(t.shape) for t in results[0]]
    found = []
    for i, (kind, shape) in enumerate(zip(alone, shapes, strict=True)):
        others = [s for j, s in enumerate(shapes) if j != i and s[:1] == shape[:1] and not alone[j].fixed]
        shared = len(shape)
        for other in others if shape and shape[0] > 1 else ():
            shared = min(shared, _together(shape, other))
        found.append(Kind(kind.fixed, kind.shuffled, kind.order, shared))
    return found


def _together(shape: Sequence[int], other: Sequence[int]) -> int:
    """Return how many first axes both shapes have in common."""
    sizes = list(zip(shape, other, strict=False))
    return next((axis for axis, (a, b) in enumerate(sizes) if a != b), len(sizes))


def _kind(entries: Sequence[Tensor]) -> Kind:
    first = entries[0]
    if first.numel() < 2 or all(torch.equal(first, t) for t in entries[1:]):
        return Kind(fixed=True)
    if first.shape[-1] < 2:
        return Kind()
    width = first.shape[-1]
    rows = [t.reshape(-1, width)[: max(1, LOOKED_AT // width)].to(torch.int64) for t in entries]
    steps = [t.diff(dim=-1) for t in rows]
    up, down = all(bool((d >= 0).all()) for d in steps), all(bool((d <= 0).all()) for d in steps)
    distinct = are_distinct_by_no_chance(rows)
    sums = torch.cat([t.sum(-1) for t in rows])
    one_sum = sums.numel() > 1 and bool((sums == sums[0]).all())
    if up or down:
        kept = distinct or one_sum or (up and down)
        return Kind(fixed=True) if kept else Kind(order="ascending" if up else "descending")
    return Kind(shuffled=distinct or one_sum)


def are_distinct_by_no_chance(rows: Sequence[Tensor]) -> bool:
    """Whether no row of integers has an entry twice, though by chance some would. All tensors have rows of one length."""
    width = rows[0].shape[-1]
    least, most = min(int(t.min()) for t in rows), max(int(t.max()) for t in rows)
    expected = sum(t.shape[0] for t in rows) * width * (width - 1) / 2 / (most - least + 1)
    return expected > REPEATS and all(are_distinct(t) for t in rows)


def mixed(kind: Kind, one: Tensor, other: Tensor, seed: int) -> Tensor:
    """Return a tensor made of two results of get_inputs, of their shape and type; the same for the same seed."""
    generator = torch.Generator(one.device).manual_seed(seed)
    if kind.shuffled:
        order = torch.rand(one.shape, generator=generator, device=one.device).argsort(-1)
        return one.gather(-1, order)
    of_shared = one.shape[: kind.shared]
    chosen = torch.rand(of_shared, generator=generator, device=one.device) < 0.5
    made = torch.where(chosen.reshape(*of_shared, *[1] * (one.dim() - len(of_shared))), one, other)
    if kind.order:
        made = made.to(torch.int64).sort(-1, descending=kind.order == "descending").values.to(one.dtype)
    return made
