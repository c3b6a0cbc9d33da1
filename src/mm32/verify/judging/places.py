"""A guard against what ends a GPU's context: indices out of bounds, and invalid probabilities.

On these, operators on a CPU raise; a GPU's kernels trap, and the process can compute nothing any more. Probes change data, so a
reference that looks something up by them may be asked for a place that does not exist. Runs in the reference's process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from .operator_mode import Mode, arguments, base_name

Arguments = Mapping[str, Any]  # an operator's arguments, by the names of its schema


class Places(NamedTuple):
    """Integers `of` that are places of an axis of `size`.

    `negative`: whether they may also count from its end. `ignored`: a value that is no place.
    """

    of: Tensor
    size: int
    negative: bool = False
    ignored: int | None = None


def _along(given: Arguments, negative: bool = False) -> Iterator[Places]:
    table = given["self"]
    yield Places(given["index"], table.shape[given["dim"]] if table.dim() else 1, negative)


def _rows(given: Arguments) -> Iterator[Places]:
    yield Places(given["indices"], given["weight"].shape[0])
    if isinstance(given.get("offsets"), Tensor):
        yield Places(given["offsets"], given["indices"].shape[0] + 1)


def _each_axis(given: Arguments) -> Iterator[Places]:
    axis, table = 0, given["self"]
    for index in given["indices"]:
        if index is None:
            axis += 1
        elif index.dtype.is_floating_point or index.element_size() == 1:  # a mask, whose shape is checked on the host
            axis += index.dim()
        else:
            yield Places(index, table.shape[axis] if axis < table.dim() else 1, negative=True)
            axis += 1


def _flat(given: Arguments) -> Iterator[Places]:
    yield Places(given["index"], given["self"].numel(), negative=True)


def _classes(given: Arguments) -> Iterator[Places]:
    scores = given["self"]
    yield Places(given["target"], scores.shape[1 if scores.dim() > 1 else 0], ignored=given.get("ignore_index"))


LOOKED_UP: dict[str, Callable[[Arguments], Iterator[Places]]] = {
    **dict.fromkeys(("gather", "scatter", "scatter_add", "scatter_reduce"), _along),
    **dict.fromkeys(("index_select", "index_add", "index_copy", "index_reduce"), _along),
    "index_fill": partial(_along, negative=True),
    **dict.fromkeys(("embedding", "_embedding_bag", "_embedding_bag_forward_only"), _rows),
    **dict.fromkeys(("index", "index_put", "_index_put_impl", "_unsafe_index", "_unsafe_index_put"), _each_axis),
    **dict.fromkeys(("take", "put"), _flat),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward", "multi_margin_loss"), _classes),
}
# Operators that take probabilities or rates: the name of the argument, and how large these may be.
LIMITS: dict[str, tuple[str, float]] = {
    "bernoulli": ("self", 1.0),
    "binary_cross_entropy": ("self", 1.0),
    "binomial": ("prob", 1.0),
    "multinomial": ("self", math.inf),  # any finite number
    "poisson": ("self", math.inf),
}
GUARDED = LOOKED_UP.keys() | LIMITS.keys()


class Guard(Mode):
    """Raises IndexError or ValueError in place of an operator that would trap on a GPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, base_name(func._schema.name)
        if name in GUARDED:
            given = arguments(func, args, kwargs)
            for places in LOOKED_UP[name](given) if name in LOOKED_UP else ():
                _check(name, places)
            if name in LIMITS:
                _check_limits(name, given)
        return func(*args, **kwargs)


def _check(name: str, places: Places) -> None:
    found = places.of if places.ignored is None else places.of[places.of != places.ignored]
    if not found.numel():
        return
    least, most = int(found.min()), int(found.max())
    if least < (-places.size if places.negative else 0) or most >= places.size:
        raise IndexError(
            f"{name}: indices from {least} to {most} are out of bounds for a dimension of size {places.size}"
        )


def _check_limits(name: str, given: Arguments) -> None:
    argument, most = LIMITS[name]
    found = given["p"] if name == "bernoulli" and "p" in given else given[argument]
    if not isinstance(found, Tensor) or not found.numel():
        return  # a number is checked on the host
    if not bool(((found >= 0) & (found <= most) & found.isfinite()).all()):
        raise ValueError(
            f"{name}: {argument} has to be {'finite and at least 0' if math.isinf(most) else f'from 0 to {most:g}'}"
        )
    if name == "multinomial" and not bool((found.sum(-1) > 0).all()):
        raise ValueError(f"{name}: the probabilities of a row are all 0")
