"""Long chains: paths through graphs, and rows each near the one before, for searches that end after few steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .contents import LEAST, ORDERED, SQUARE, WIDEST, changed, is_data, like, structure
from .regrouped import belongs_together, same_sums

MOST_NODES = 1 << 20  # integers over a range this wide or wider are not taken for the numbers of nodes
CHAIN = 32  # rows in a chain, each a small step from the one before; in one draw of two, all rows are one chain, if not too many
MOST_IN_CHAIN = 1024
CHEAP = 1 / 64  # weights along a path, as a part of the largest one
POSITIONS = 2, 4  # the least and the most numbers in a row that may be a place or a box
# Lengths of steps, one for each chain in turn, as parts of a box's size or of the usual distance between rows: two
# neighbouring boxes overlap by half, two that are further apart do not.
STEPS = 0.08, 0.16, 0.28


def chained(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Turn square matrices of zeros and ones (or booleans) into matrices of a path through all rows, in random order.

    The diagonal stays, and a symmetric matrix stays symmetric. Matrices with blocks or triangles of ones are left alone, and
    so are those whose rows or columns all add up to the same, as those of one-hot labels and permutations do. Two rows or
    columns of integers, such as the ends of edges, become a path as well. In square matrices of weights, none below zero, the
    path is cheap, and all else costs at least half of the largest weight.
    """
    out = list(values)
    for i, t in enumerate(values):
        if isinstance(t, Tensor) and t.dtype in WIDEST and t.dim() == 2 and 2 in t.shape:
            out[i] = _path(t, generator)
            continue
        if not isinstance(t, Tensor) or t.is_complex() or t.dim() < 2 or t.shape[-1] != t.shape[-2]:
            continue
        if not ORDERED <= t.shape[-1] <= SQUARE:
            continue
        if is_data(t) and not structure(t) and bool((t >= 0).all()):
            out[i] = _cheap_path(t, generator)
            continue
        if not bool(((t == 0) | (t == 1)).all()):
            continue
        ones = t != 0
        symmetric = torch.equal(ones, ones.mT)
        whole = ones.to(torch.int64)
        if same_sums(whole) or same_sums(whole.mT) or (belongs_together(whole, truth=True) and not symmetric):
            continue
        order = torch.rand(t.shape[-1], generator=generator, device=t.device).argsort()
        path = torch.zeros_like(ones)
        path[..., order[:-1], order[1:]] = True
        path |= ones & torch.eye(t.shape[-1], dtype=torch.bool, device=t.device)
        out[i] = like(t, path | path.mT if symmetric else path)
    return changed(out, values)


def _cheap_path(t: Tensor, generator: torch.Generator) -> Tensor:
    """Return weights of which those along a path through all rows, in random order, are small. The diagonal stays."""
    drawn = torch.rand(t.shape, generator=generator, device=t.device)
    order = torch.rand(t.shape[-1], generator=generator, device=t.device).argsort()
    new = t.max() * (0.5 + 0.5 * drawn)
    new[..., order[:-1], order[1:]] = (t.max() * CHEAP * drawn)[..., order[:-1], order[1:]]
    return like(t, torch.where(torch.eye(t.shape[-1], dtype=torch.bool, device=t.device), t, new.to(t.dtype)))


def stepping(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Turn rows of two to four numbers, such as places and boxes, into chains.

    A chain is made of copies of one row, each moved by a small step from the one before. Vectors with a number for each row,
    such as scores, fall along each chain, and integers with one for each row are those of the chain's first row. All rows
    are put into random order.
    """
    out = list(values)
    for count in {t.shape[-2] for t in values if isinstance(t, Tensor) and _places(t)}:
        long = bool(torch.randint(0, 2, (), generator=generator, device=generator.device)) and count <= MOST_IN_CHAIN
        length = count if long else min(CHAIN, count)
        at = torch.arange(count, device=generator.device)
        first, link = at // length * length, at % length
        order = torch.rand(count, generator=generator, device=generator.device).argsort()
        falling = link.argsort(stable=True)  # the first of each chain, then the second of each
        for i, t in enumerate(values):
            if not isinstance(t, Tensor) or not t.dim():
                continue
            axis = -1
            if _places(t) and t.shape[-2] == count:
                new, axis = _moved(t, first.to(t.device), link.to(t.device), length), -2
            elif t.shape[-1] == count and t.is_floating_point() and is_data(t):
                new = torch.empty_like(t)
                new[..., falling.to(t.device)] = t.sort(-1, descending=True).values
            elif t.shape[-1] == count and t.dtype in WIDEST:
                new = t.index_select(-1, first.to(t.device))
            else:
                continue
            out[i] = like(t, new.index_select(axis, order.to(t.device)))
    return changed(out, values)


def _moved(t: Tensor, first: Tensor, link: Tensor, length: int) -> Tensor:
    """Return each row as a copy of the `first` row of its chain, moved by as many steps as it is away from there (`link`)."""
    start = t.index_select(-2, first)
    # The size of a box is that from one corner to the other; for places it is a part of their spread.
    size = (start[..., 2:] - start[..., :2]).abs().mean(-1, keepdim=True) if t.shape[-1] == 4 else t.std() / length
    step = torch.tensor(STEPS, dtype=t.dtype, device=t.device)[first // length % len(STEPS), None]
    return start + link.to(t.dtype)[:, None] * step * size


def _places(t: Tensor) -> bool:
    return t.dim() > 1 and POSITIONS[0] <= t.shape[-1] <= POSITIONS[1] and t.shape[-2] >= ORDERED and is_data(t)


def _path(t: Tensor, generator: torch.Generator) -> Tensor:
    """Turn pairs of integers, in two rows or two columns, into a path: each pair begins where another one ends.

    The path runs in random order through all numbers of the range that both rows or columns share; then back, then from each
    number to the next but one, and so on, for as many pairs as there are. Pairs of one number twice stay. Where the first
    number is never the larger one, where each pair is there in both directions, or where a row is in order, that stays so.
    """
    pairs = (t if t.shape[0] == 2 else t.mT).to(torch.int64)
    low, high = int(pairs.amin(1).max()), int(pairs.amax(1).min())
    others = pairs[0] != pairs[1]
    count = int(others.sum())
    if count < LEAST or not LEAST <= high - low < MOST_NODES:
        return t
    nodes = low + torch.rand(high - low + 1, generator=generator, device=t.device).argsort()
    both = torch.equal(_sorted_pairs(pairs), _sorted_pairs(pairs.flip(0)))
    rising = bool((pairs[0] <= pairs[1]).all())
    new = _links(nodes, count // 2 if both else count, back=not (both or rising))
    if both:
        new = torch.cat([new, new.flip(0)], 1)
    elif rising:
        new = new.sort(0).values
    ordered = [row for row in (1, 0) if bool((pairs[row].diff() >= 0).all())]
    pairs = pairs.clone()
    pairs[:, others] = new
    for row in ordered:
        pairs = pairs[:, pairs[row].argsort(stable=True)]
    return like(t, (pairs if t.shape[0] == 2 else pairs.mT).contiguous())


def _links(nodes: Tensor, count: int, back: bool) -> Tensor:
    """Return `count` pairs of nodes: first those next to each other in the order of `nodes`, then those two apart, and so
    on; with `back`, each in both directions. If there are not enough pairs, they are repeated from the first on."""
    found, total = [], 0
    for apart in range(1, len(nodes)):
        one = torch.stack([nodes[:-apart], nodes[apart:]])
        found += [one, one.flip(0)] if back else [one]
        total += one.shape[1] * (1 + back)
        if total >= count:
            break
    return torch.cat(found, 1)[:, torch.arange(count, device=nodes.device) % total]


def _sorted_pairs(pairs: Tensor) -> Tensor:
    """Return the pairs in order. Each of the two rows holds one number of every pair."""
    order = (pairs[0] * (int(pairs.max()) + 1) + pairs[1]).argsort()
    return pairs[:, order]
