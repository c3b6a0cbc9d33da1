"""Which of a model's outputs depend on coarse arithmetic, and which on a place that was picked among entries.

Labels belong to memory, not to tensors: a write through a view counts for the whole. Runs in the reference's process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

from .bounds import ROUNDOFF
from .operator_mode import base_name, is_view

COPIES = {"clone", "_unsafe_view"}  # operators that return what they are given, but are no views
# Operators that pick a place among entries.
PICKS = {
    *("argmax", "argmin", "max", "min", "topk", "kthvalue", "median", "nanmedian", "mode", "cummax", "cummin"),
    *("sort", "argsort", "unique_dim", "_unique2", "unique_consecutive", "multinomial"),
    *("max_pool2d_with_indices", "max_pool3d_with_indices", "fractional_max_pool2d"),
    *("adaptive_max_pool2d", "adaptive_max_pool3d"),
}


@dataclass(frozen=True)
class Label:
    """What is known of the operators that led to a tensor.

    `u`: the largest unit roundoff among their results. `inner`: the same without the last casts, which may be made only to return
    a result; `cast`: that of these casts. `picked`: whether one of the operators picked a place among entries.
    """

    u: float = 0.0
    inner: float = 0.0
    cast: float = 0.0
    picked: bool = False

    def joined(self, other: Label) -> Label:
        return Label(
            max(self.u, other.u), max(self.inner, other.inner), max(self.cast, other.cast), self.picked or other.picked
        )


class Flow:
    """Follows the operators of one run; `follow` takes each after its call."""

    def __init__(self) -> None:
        self._labels: dict[int, tuple[StorageWeakRef, Label]] = {}
        self._everywhere = Label()  # of what cannot be followed, and so may be anywhere: Python numbers, sparse tensors

    def follow(self, func: Any, args: Any, kwargs: Any, results: Iterable[Tensor]) -> None:
        name = base_name(func._schema.name)
        given = self._everywhere
        for t in pytree.tree_leaves((args, kwargs)):
            if isinstance(t, Tensor) and (label := self.of(t)) is not None:
                given = given.joined(label)
        if name == "_local_scalar_dense":
            self._everywhere = self._everywhere.joined(given)
            return
        if is_view(func):
            return  # the same memory
        for t in results:
            u = ROUNDOFF.get(t.dtype, 0.0)
            if name == "_to_copy":
                label = Label(max(given.u, u), given.inner, max(given.cast, u), given.picked)
            elif name in COPIES:
                label = given
            else:
                picked = given.picked or (name in PICKS and not t.is_floating_point() and t.dtype != torch.bool)
                label = Label(max(given.u, u), max(given.inner, given.cast, u), 0.0, picked)
            self._put(t, label)

    def of(self, t: Tensor) -> Label | None:
        """Return the label of a tensor that an operator returned; None for any other."""
        found = self._labels.get(t.untyped_storage()._cdata) if t.layout == torch.strided else None
        return found[1] if found is not None else None

    def _put(self, t: Tensor, label: Label) -> None:
        if t.layout != torch.strided:  # it has no storage by which to recognise it
            self._everywhere = self._everywhere.joined(label)
            return
        storage, before = t.untyped_storage(), self.of(t)
        # A weak reference keeps the address from being reused for another tensor's memory.
        self._labels[storage._cdata] = StorageWeakRef(storage), label.joined(before) if before is not None else label
