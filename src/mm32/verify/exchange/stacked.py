"""States of a model, of many buffers each, as one tensor for each dtype and device: a message of few tensors, not hundreds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

# For each buffer: its name, its shape, and the number of the tensor that it is in. Buffers lie in this order in every row of it.
Layout = list[tuple[str, list[int], int]]


class Stack:
    """States, one after the other, all with the same buffers."""

    def __init__(self) -> None:
        self.layout: Layout = []
        self._rows: list[list[Tensor]] = []

    def add(self, state: Mapping[str, Tensor]) -> bool:
        """Add a copy of a state. Returns False, without adding it, if it is not finite or its buffers are not the first one's."""
        kinds = {name: (t.dtype, t.device) for name, t in state.items()}
        numbers = {kind: i for i, kind in enumerate(dict.fromkeys(kinds.values()))}
        layout = [(name, list(t.shape), numbers[kinds[name]]) for name, t in state.items()]
        rows = [
            torch.cat([t.detach().reshape(-1) for name, t in state.items() if kinds[name] == kind]) for kind in numbers
        ]
        if not all(bool(row.isfinite().all()) for row in rows if row.is_floating_point() or row.is_complex()):
            return False
        if self._rows and (layout, [row.dtype for row in rows]) != (self.layout, [row.dtype for row in self._rows[0]]):
            return False
        self.layout = layout
        self._rows.append(rows)
        return True

    @property
    def tensors(self) -> list[Tensor]:
        """One tensor for each dtype and device, of shape (states, entries)."""
        return [torch.stack(rows) for rows in zip(*self._rows, strict=True)]


def unstacked(tensors: Sequence[Tensor], layout: Sequence[Any]) -> list[dict[str, Tensor]]:
    """Return the states again, as views."""
    states: list[dict[str, Tensor]] = [{} for _ in range(len(tensors[0]) if tensors else 0)]
    for number, rows in enumerate(tensors):
        own = [(name, shape) for name, shape, of in layout if of == number]
        sizes = [torch.Size(shape).numel() for _, shape in own]
        for state, row in zip(states, rows, strict=True):
            for (name, shape), piece in zip(own, row.split(sizes), strict=True):
                state[name] = piece.view(shape)
    return states
