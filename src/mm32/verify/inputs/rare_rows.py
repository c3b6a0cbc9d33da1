"""A few lines of a tensor of data that are of another kind than the rest. Runs in the reference's process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .contents import around_nan, changed, like, size_of

# One row in RARE is of another kind, at most MOST_RARE rows, or one of each kind if these are more. The fewer such rows
# there are, the less often a look at some rows meets one.
RARE, MOST_RARE = 64, 2
LARGE = 128  # times the usual size: exponentials overflow, and a mean of 10000 usual squares hardly grows
SAMPLED = 8  # rows at multiples of this number stay as they are: a look at some rows would take these

# Makes another row from a row, the usual size of entries, and a generator.
Kind = Callable[[Tensor, float, torch.Generator], Tensor]


def with_rare_lines(
    name: str, values: Sequence[object], chosen: Sequence[int], generator: torch.Generator
) -> list[object]:
    """Change a few rows of each `chosen` input to other kinds.

    A row runs along the last axis; in a vector it is one entry. For "rare columns" it is a line along another axis, drawn
    from the axes of 8 entries or more. Raises CannotVary, with nothing to report, where there are fewer than 8 rows.
    """
    out = list(values)
    for i in chosen:
        t = values[i]
        assert isinstance(t, Tensor)
        axis = t.dim() - 1
        if name.startswith("rare columns"):
            others = [a for a in range(t.dim() - 1) if t.shape[a] >= SAMPLED]
            if not others:
                continue
            axis = others[int(torch.randint(0, len(others), (1,), generator=generator, device=generator.device))]
        elif t.dim() < 2:
            axis = -1
        if t.numel() // (t.shape[axis] if axis >= 0 else 1) < SAMPLED:
            continue
        out[i] = like(t, around_nan(t, lambda own, axis=axis: _rare(own, axis, RARE_KINDS[name], generator)))  # type: ignore[misc]
    return changed(out, values)


def _rare(t: Tensor, axis: int, kinds: Sequence[Kind], generator: torch.Generator) -> Tensor:
    """Change a few lines of `t` along `axis` (its entries, if that is negative) to each of `kinds`, at random places that
    are never a multiple of 8."""
    wide = t.movedim(axis, -1) if axis >= 0 else t.unsqueeze(-1)
    rows = wide.reshape(-1, wide.shape[-1]).clone()
    count = len(rows)
    most = max(1, min(max(len(kinds), min(count // RARE, MOST_RARE)), count // SAMPLED))
    places = torch.randperm(count, generator=generator, device=t.device)
    places = places[places % SAMPLED != 0][:most]
    first = int(torch.randint(0, len(kinds), (1,), generator=generator, device=generator.device))
    size = size_of(t)
    for number, place in enumerate(places.tolist()):
        row = rows[place]
        rows[place] = kinds[(first + number) % len(kinds)](row, size, generator).to(row.dtype)
    made = rows.view(wide.shape)
    return made.movedim(-1, axis) if axis >= 0 else made.squeeze(-1)


def _both_signs(row: Tensor, size: float, generator: torch.Generator) -> Tensor:
    return torch.randn(row.shape, generator=generator, device=row.device) * size


def _few_large(row: Tensor, size: float, generator: torch.Generator) -> Tensor:
    """Make one entry LARGE times as large as usual, and one as far below zero if the row has entries below zero; in a row of more
    than 8, not at a multiple of 8."""
    new, at = row.clone(), torch.randperm(len(row), generator=generator, device=row.device)
    at = at[at % SAMPLED != 0] if len(row) > SAMPLED else at
    signs = [sign for sign in (1.0, -1.0) if bool((sign * row > 0).any())] or [-1.0]
    for place, sign in zip(at.tolist(), signs, strict=False):
        new[place] = sign * LARGE * size
    return new


def _below(row: Tensor, size: float, generator: torch.Generator) -> Tensor:
    return -row.abs() - size / 64


def _far_from_zero(row: Tensor, size: float, generator: torch.Generator) -> Tensor:
    return 10 * size + _both_signs(row, size, generator)


def _equal(row: Tensor, size: float, generator: torch.Generator) -> Tensor:
    return torch.full_like(row, 0.5)


def _times(by: float) -> Kind:
    return lambda row, size, generator: row * by


# The kinds of rows that a variation puts in, by its name.
RARE_KINDS: dict[str, tuple[Kind, ...]] = {
    "rare large rows": (_times(1e5),),
    "rare rows times 100": (_times(100.0),),
    "rare small rows": (_times(0.0), _times(1e-3), _times(1e-7), _times(2.0**-5)),
    "rare rows times 0.001": (_times(1e-3), _times(1e-7), _times(2.0**-5)),
    "rare odd rows": (_below, _both_signs, _far_from_zero, _equal, _few_large),
    "rare equal rows": (_equal, _few_large),
    "rare columns": (_times(100.0), _times(1e-3), _below, _both_signs),
    "rare columns of one sign": (_times(100.0), _times(1e-3)),
}
