"""Other integers and booleans, and symmetric matrices in another order, made of their own entries; what belongs together
stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from .contents import LEAST, ORDERED, SQUARE, WIDEST, changed, few, like
from .rare_rows import MOST_RARE, RARE, SAMPLED

BLOCK = 2  # the most changes along a row of booleans that are one block
MOSTLY = 0.9  # the share of a row's integers that become one number
MANY_ROWS = 16  # where there are so many rows of booleans or more, a third of them is changed, else half
MOVED, END = 64, 8  # one entry in MOVED of a row becomes another, and none in the first or the last 1 / END of the row


def replaced(
    values: Sequence[object], generator: torch.Generator, exchange: bool = False, steady: Sequence[int] | None = None
) -> list[object]:
    """Replace a few entries of integers and booleans, in the inputs `steady` or in all.

    No entry near an end of a row, or in the first of several rows, is replaced: a memory of answers may know the rest again
    by these. A new entry is another one of its row along the longest axis, so that it stays in the range of its column.
    Where all entries of a row are distinct, it is a number between them that the row does not have. With `exchange`, and in
    permutations, entries change places. Where all rows have one sum (one-hot labels, so many of each row), entries change
    places along the last axis. What belongs together stays: a symmetric matrix, rows in order, padding, blocks of booleans.
    """
    out = list(values)
    for i, t, whole in _apart(values):
        if steady is not None and i not in steady:
            continue
        alike = same_sums(whole)
        axis = t.dim() - 1 if alike else _longest(t)
        rows = whole.movedim(axis, -1)
        new = torch.where(_are_in_order(rows), rows, _others(rows, generator, exchange or alike)).movedim(-1, axis)
        if t.dim() > 1 and t.shape[0] >= LEAST and not torch.equal(new[1:], whole[1:]):
            new[0] = whole[0]
        if not torch.equal(new, whole):
            out[i] = like(t, new)
    return changed(out, values)


def _others(rows: Tensor, generator: torch.Generator, exchange: bool) -> Tensor:
    """Return rows of integers in which a few entries are replaced, as `replaced` says."""
    count = rows.shape[-1]
    end = count // END
    drawn = torch.rand(*rows.shape[:-1], count - 2 * end, generator=generator, device=rows.device)
    places = end + drawn.topk(min(max(2, count // MOVED), count - 2 * end)).indices
    ordered = rows.sort(-1).values
    apart = ordered.diff(dim=-1)
    if exchange or not bool((apart > 0).all()):
        new = rows.gather(-1, places.roll(1, -1))
        if exchange:
            return rows.scatter(-1, places, new)
        return rows.scatter(-1, places[..., :-1], new[..., :-1])
    if bool((apart == 1).all()):
        return _others(rows, generator, exchange=True)
    # One more than the number below the widest gap, which the row does not have.
    free = ordered.gather(-1, apart.argmax(-1, keepdim=True)) + 1
    wide = apart.amax(-1, keepdim=True) > 1
    first = places[..., :1]
    return rows.scatter(-1, first, torch.where(wide, free, rows.gather(-1, first)))


def with_zeros(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Set one in sixteen of integers that are all above 0 to zero, and at least one; in rows in order, the least ones.
    Tensors of distinct integers stay, since these are offsets or places. But few integers in a wide range may be distinct by
    chance (lengths, say): one of them becomes 0."""
    out = list(values)
    for i, t, whole in _apart(values):
        rows = whole.movedim(_longest(t), -1)
        if t.dtype not in WIDEST or not bool((whole > 0).all()) or bool((whole == whole.amax()).all()):
            continue
        apart = 16
        if are_distinct(rows):
            if rows.shape[-1] ** 2 > 2 * int(whole.max()) or bool(_are_in_order(rows).any()):
                continue
            apart = whole.numel() * whole.numel()
        if bool(_are_in_order(rows).all()):
            place = torch.arange(rows.shape[-1], device=t.device).expand(rows.shape)
            place = torch.where(rows[..., :1] > rows[..., -1:], place.flip(-1), place)
            out[i] = like(t, torch.where(place < max(1, rows.shape[-1] // 16), 0, rows).movedim(-1, _longest(t)))
        elif not bool(_are_in_order(rows).any()):
            out[i] = like(t, torch.where(few(whole, apart, generator), 0, whole))
    return changed(out, values)


def equal_pairs(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Make the second number equal to the first in one of sixteen pairs of integers, such as the two ends of edges, and in
    at least one. Pairs lie along an axis of two, the first or the last, or in inputs of one type and shape. What belongs
    together stays."""
    out = list(values)
    before: dict[object, Tensor] = {}
    for i, t, whole in _apart(values):
        if t.dtype not in WIDEST:
            continue
        other = before.setdefault((t.dtype, t.shape), whole)
        axis = next((axis for axis in (0, t.dim() - 1) if t.dim() > 1 and t.shape[axis] == 2), None)
        if axis is not None:
            first, second = whole.unbind(axis)
            new = torch.stack([first, _sometimes(first, second, generator)], axis)
        elif other is not whole:
            new = _sometimes(other, whole, generator)
        else:
            continue
        if not torch.equal(new, whole):
            out[i] = like(t, new)
    return changed(out, values)


def _sometimes(first: Tensor, second: Tensor, generator: torch.Generator) -> Tensor:
    """Return `second` with some numbers of `first` in their places, if the ranges of both overlap; else `second`."""
    if first.amin() > second.amax() or second.amin() > first.amax():
        return second
    return torch.where(few(first, 16, generator), first, second)


def least(values: Sequence[object]) -> list[object]:
    """Set integers to the least of their tensor. Those in order or all distinct stay, and so does what belongs together."""
    out = list(values)
    for i, t, whole in _apart(values):
        if t.dtype in WIDEST and not _are_places(whole.movedim(_longest(t), -1)):
            out[i] = like(t, whole.amin().expand_as(whole).clone())
    return out


def repeated(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Set most integers in a third of the rows to one of the row's own numbers. Rows run along the longest axis, as in
    `replaced`. What belongs together stays, and so do rows in order and rows of distinct numbers: what is stored twice at
    one place has no order."""
    out = list(values)
    for i, t, whole in _apart(values):
        if t.dtype not in WIDEST or same_sums(whole):
            continue
        axis = _longest(t)
        rows = whole.movedim(axis, -1)
        if are_distinct(rows):
            continue
        own = rows.gather(
            -1, torch.randint(0, rows.shape[-1], (*rows.shape[:-1], 1), generator=generator, device=t.device)
        )
        drawn = torch.rand(rows.shape, generator=generator, device=t.device)
        some = few(rows[..., :1], 3, generator) & ~_are_in_order(rows)
        new = torch.where(some & (drawn < MOSTLY), own, rows).movedim(-1, axis)
        if not torch.equal(new, whole):
            out[i] = like(t, new)
    return changed(out, values)


def narrowed(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Narrow the range of integers, by the entries of the first axis (as images of bytes have them). Of every three entries,
    one has its numbers limited to the middle half of their distribution, and one has a single number everywhere. What
    belongs together stays, and so do rows in order and rows of distinct numbers."""
    out = list(values)
    for i, t, whole in _apart(values):
        if t.dtype not in WIDEST or t.dim() < 2 or same_sums(whole) or _are_places(whole.movedim(_longest(t), -1)):
            continue
        rows = whole.flatten(1)
        found = rows.sort(-1).values
        low, middle, high = (found[:, rows.shape[1] * part // 4, None] for part in (1, 2, 3))
        kinds = torch.arange(len(rows), device=t.device)[:, None]
        kinds = (kinds + int(torch.randint(0, 2, (1,), generator=generator, device=t.device))) % 3
        new = torch.where(kinds == 0, rows.clamp(low, high), torch.where(kinds == 1, middle, rows))
        out[i] = like(t, new.view(whole.shape))
    return changed(out, values)


def in_order(values: Sequence[object], generator: torch.Generator, both: bool = True) -> list[object]:
    """Sort integers along their longest axis, which keeps each in the range of its column. Tensors of two values, such as
    booleans, are sorted along the last axis and, with `both`, along the one before as well. All rise or all fall. What is in
    order already, as places where groups begin, stays."""
    out = list(values)
    falling = bool(torch.randint(0, 2, (), generator=generator, device=generator.device))
    for i, t, whole in _apart(values):
        two = bool(((whole == whole.min()) | (whole == whole.max())).all())
        axis = -1 if two else _longest(t)
        if same_sums(whole) or bool(_are_in_order(whole.movedim(axis, -1)).all()):
            continue
        new = whole.sort(axis, descending=falling).values
        if two and both and t.dim() > 1:
            new = new.sort(-2, descending=falling).values
        if not torch.equal(new, whole):
            out[i] = like(t, new)
    return changed(out, values)


def uneven(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """In integers in order along the last axis (where groups begin, say), set three of four steps to 0 and add them to one
    step: groups of nothing, and one that is long. Steps that are all alike, as those of positions, stay."""
    out = list(values)
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or t.dtype not in WIDEST or not t.dim() or t.shape[-1] < ORDERED:
            continue
        steps = t.to(torch.int64).diff(dim=-1)
        if bool((steps < 0).any()) or bool((steps == steps.reshape(-1)[0]).all()):
            continue
        stays = torch.rand(steps.shape, generator=generator, device=t.device) < 0.25
        longest = torch.randint(0, steps.shape[-1], (*steps.shape[:-1], 1), generator=generator, device=t.device)
        gone = (steps * ~stays).sum(-1, keepdim=True)
        steps = (steps * stays).scatter_add_(-1, longest, gone)
        out[i] = like(t, torch.cat([t[..., :1].long(), t[..., :1] + steps.cumsum(-1)], -1))
    return changed(out, values)


def rare_rows(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Put one or two rows of integers and booleans, along the last axis, into another order. A look at some rows would not
    take these: the first, the last and those at multiples of 8 stay. Rows in order stay, and so does what belongs together."""
    out = list(values)
    for i, t, whole in _apart(values):
        rows = whole.reshape(-1, t.shape[-1])
        if t.dim() < 2 or t.shape[-1] < LEAST or len(rows) < SAMPLED + 2 or bool(_are_in_order(rows).any()):
            continue
        places = torch.randperm(len(rows) - 1, generator=generator, device=t.device)
        places = places[places % SAMPLED != 0][: max(1, min(len(rows) // RARE, MOST_RARE))]
        new = rows.clone()
        for place in places.tolist():
            order = torch.randperm(t.shape[-1], generator=generator, device=t.device)
            new[place] = rows[place][order]
        if not torch.equal(new, rows):
            out[i] = like(t, new.view(whole.shape))
    return changed(out, values)


def boolean_rows(values: Sequence[object], generator: torch.Generator, whole: bool = True) -> list[object]:
    """Make a third of the rows of booleans along the last axis, or half of few rows, all true or all false, but for no
    entry, one, or three in rows of 16 entries or more. Without `whole`, always but for one."""
    out = list(values)
    for i, t, _ in _apart(values):
        if t.dtype != torch.bool or t.dim() < 2 or t.shape[-1] < LEAST:
            continue
        place = torch.rand(t.shape, generator=generator, device=t.device).argsort(-1)
        one, three = place < 1, place < 3
        kinds = [torch.zeros_like(t), torch.ones_like(t), ~one, one, three, ~three] if whole else [one, ~one]
        if t.shape[-1] < 16:
            kinds = kinds[:4]
        rows = few(t[..., :1], 3 if t.numel() >= MANY_ROWS * t.shape[-1] else 2, generator)
        rows.view(-1)[0] = True  # the row that a look at one row would take
        # The kinds take turns, all false first, so that a few rows have all kinds.
        kind = (rows.reshape(-1).cumsum(0) - 1).reshape(rows.shape) % len(kinds)
        new = t
        for number, of in enumerate(kinds):
            new = torch.where(rows & (kind == number), of, new)
        out[i] = like(t, new)
    return changed(out, values)


def relabelled(values: Sequence[object], generator: torch.Generator) -> list[object]:
    """Reorder the rows and columns of symmetric matrices alike, which keeps what else they are, such as positive definite."""
    out = list(values)
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or t.dim() < 2 or t.shape[-1] != t.shape[-2] or not 3 <= t.shape[-1] <= SQUARE:
            continue
        if not torch.equal(t, t.mT):
            continue
        order = torch.rand(t.shape[-1], generator=generator, device=t.device).argsort()
        new = t.index_select(-1, order).index_select(-2, order)
        if not torch.equal(new, t):
            out[i] = like(t, new)
    return changed(out, values)


def _apart(values: Sequence[object]) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield the integers and booleans whose entries do not belong together: the index of the value, the value, and the value
    as int64."""
    for i, t in enumerate(values):
        if not isinstance(t, Tensor) or t.is_floating_point() or t.is_complex() or t.numel() < LEAST or not t.dim():
            continue
        whole = t.to(torch.int64)
        if not belongs_together(whole, t.dtype == torch.bool):
            yield i, t, whole


def are_distinct(rows: Tensor) -> bool:
    """Whether all numbers are distinct in every row."""
    return bool((rows.sort(-1).values.diff(dim=-1) > 0).all())


def _longest(t: Tensor) -> int:
    return max(range(t.dim()), key=lambda axis: t.shape[axis])


def _are_in_order(rows: Tensor) -> Tensor:
    """Return for each row whether it is in order."""
    steps = rows.diff(dim=-1)
    return (steps >= 0).all(-1, keepdim=True) | (steps <= 0).all(-1, keepdim=True)


def _are_places(rows: Tensor) -> bool:
    """Whether rows look like offsets or places: one is in order, or in each all numbers are distinct."""
    return bool(_are_in_order(rows).any()) or are_distinct(rows)


def same_sums(t: Tensor) -> bool:
    """Whether all rows add up to one sum, as those of one-hot labels do."""
    sums = t.sum(-1).reshape(-1)
    return sums.numel() > 1 and bool((sums == sums[0]).all())


def belongs_together(t: Tensor, truth: bool) -> bool:
    """Whether entries of integers (or of `truth` values) each have a place of their own: in a symmetric matrix, in rows that
    begin or end in zeros as padding does, and in booleans whose rows or columns are one block each."""
    if t.dim() > 1 and t.shape[-1] == t.shape[-2] and bool((t == t.mT).all()):
        return True
    gone = t == 0
    for axis in (-1, -2) if truth and t.dim() > 1 else (-1,):
        if t.shape[axis] < ORDERED or not bool((gone.sum(axis) > 1).any()):
            continue
        if bool((gone.diff(dim=axis).sum(axis) <= (BLOCK if truth else 1)).all()):
            return True
    return False
