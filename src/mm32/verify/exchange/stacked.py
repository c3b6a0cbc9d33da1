"""States of a model, as many buffers each, as one tensor for each dtype: a message of few tensors in place of hundreds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

# Of each buffer its name, its shape, and the tensor that it is in. In every row of that they follow each other.
Layout = list[tuple[str, list[int], int]]


class Stack:
    """States, one after the other, all of the same buffers."""

    def __init__(self) -> None:
        self.layout: Layout = []
        self._rows: list[list[Tensor]] = []

    def add(self, state: Mapping[str, Tensor]) -> bool:
        """Take a copy of one more. False, and it is not taken, if it is not finite or has other buffers than the first one."""
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
        """Of each dtype one: (states, entries)."""
        return [torch.stack(rows) for rows in zip(*self._rows, strict=True)]


def unstacked(tensors: Sequence[Tensor], layout: Sequence[Any]) -> list[dict[str, Tensor]]:
    """The states again, as views."""
    states: list[dict[str, Tensor]] = [{} for _ in range(len(tensors[0]) if tensors else 0)]
    for number, rows in enumerate(tensors):
        own = [(name, shape) for name, shape, of in layout if of == number]
        sizes = [torch.Size(shape).numel() for _, shape in own]
        for state, row in zip(states, rows, strict=True):
            for (name, shape), piece in zip(own, row.split(sizes), strict=True):
                state[name] = piece.view(shape)
    return states
