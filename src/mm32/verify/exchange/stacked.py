"""States of a model, as many buffers each, as one tensor for each dtype: a message of few tensors in place of hundreds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

# Of each buffer its name, its shape, and the tensor that it is in; of each tensor, they follow each other in every row.
Layout = list[tuple[str, list[int], int]]


def stacked(states: Sequence[Mapping[str, Tensor]]) -> tuple[list[Tensor], Layout]:
    """The tensors (states, entries), and where in them the buffers are. All states have the same buffers."""
    if not states:
        return [], []
    kinds = {name: (t.dtype, t.device) for name, t in states[0].items()}
    numbers = {kind: i for i, kind in enumerate(dict.fromkeys(kinds.values()))}
    layout = [(name, list(t.shape), numbers[kinds[name]]) for name, t in states[0].items()]
    tensors = [
        torch.stack([torch.cat([t.reshape(-1) for name, t in one.items() if kinds[name] == kind]) for one in states])
        for kind in numbers
    ]
    return tensors, layout


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
