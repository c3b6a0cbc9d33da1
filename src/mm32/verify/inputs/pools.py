"""Fresh inputs for every timed call, from private pools of the reference's own data.

A pool holds a few results of the reference's get_inputs(). A slot's floating-point tensor is a part of one of them, read from a
random offset of its memory with wrap-around, and a range of random place and length from another one at another offset. So
values stay of the kind that get_inputs makes, and neither sums nor single entries tell which result belongs to them. What is in
order, symmetric, triangular or a distribution is a mean of two of them, weighted at random, which is so too; of what is
orthogonal a product.
Integers and truth values (indices, masks) are mixed entry by entry, each in its place (integers.py). A recipe, a few numbers,
makes the same data again, which the tool keeps instead of copies.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..exchange.wire import DTYPE_NAMES, axis_order, leaves
from . import integers
from .variations import has_structure, is_orthogonal

SMALL = 16  # entries, below which a tensor of floats is not mixed
ALIGNMENT = 512  # bytes, of every tensor in a slot
# For each tensor: (entry,); or (entry, offset, entry, offset, begin, end); of integers and structures (entry, entry, seed).
Recipe = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Part:
    """Where a tensor lies in each slot of a region: at offset + slot * step, in bytes. A plain leaf has a path alone."""

    path: str
    dtype: torch.dtype | None = None
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    bytes: int = 0
    offset: int = 0
    step: int = 0

    def described(self) -> dict[str, Any]:
        """For the worker."""
        if self.dtype is None:
            return {"path": self.path}
        return {
            "path": self.path,
            "dtype": DTYPE_NAMES[self.dtype],
            "shape": list(self.shape),
            "strides": list(self.strides),
            "bytes": self.bytes,
            "offset": self.offset,
            "step": self.step,
        }

    def view(self, memory: Tensor, slot: int) -> Tensor:
        """The tensor of a slot, over `memory`, the region's bytes."""
        assert self.dtype is not None
        at = self.at(slot)
        return memory[at : at + self.bytes].view(self.dtype).as_strided(self.shape, self.strides)

    def at(self, slot: int) -> int:
        """Its first byte in a slot."""
        return self.offset + slot * self.step


def parts(values: Sequence[tuple[str, Any]], start: int, count: int) -> tuple[list[Part], int]:
    """The places of the tensors among `values` (path, leaf) in `count` slots, from byte `start` on, and where they end."""
    step = sum(_aligned(leaf.numel() * leaf.element_size()) for _, leaf in values if isinstance(leaf, Tensor))
    found, at = [], start
    for path, leaf in values:
        if not isinstance(leaf, Tensor):
            found.append(Part(path))
            continue
        order = axis_order(leaf)
        strides, stride = [0] * leaf.dim(), 1
        for axis in reversed(order):
            strides[axis], stride = stride, stride * max(1, leaf.shape[axis])
        size = leaf.numel() * leaf.element_size()
        found.append(Part(path, leaf.dtype, tuple(leaf.shape), tuple(strides), size, at, step))
        at += _aligned(size)
    return found, start + step * count


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _range(t: Tensor, begin: int, length: int) -> list[Tensor]:
    """So many entries of a vector from `begin` on, and on from its beginning where it ends."""
    found = [t[begin : begin + length], t[: max(0, begin + length - t.numel())]]
    return [piece for piece in found if piece.numel()]


def _blend(one: Tensor, other: Tensor, seed: int, orthogonal: bool) -> Tensor:
    """A mean of both, which keeps what convex sets keep; of orthogonal matrices the product, an even number of rows negated."""
    if orthogonal:
        generator = torch.Generator(one.device).manual_seed(seed)
        signs = torch.randint(0, 2, (one.shape[-1], 1), generator=generator, device=one.device) * 2 - 1
        signs[0] *= signs.prod()
        wide = torch.complex128 if one.is_complex() else torch.float64
        return (one.to(wide) @ other.to(wide) * signs).to(one.dtype)
    weight = 0.1 + 0.8 * (seed / 2**31)
    return torch.lerp(other, one, weight)


class Pools:
    """`inputs`: two or more results of get_inputs(), with tensors alike; kept on `device`."""

    def __init__(self, inputs: Sequence[Sequence[Any]], device: torch.device):
        self.entries = len(inputs)
        self.chance = random.SystemRandom()
        self.tree = list(inputs[0])
        self.leaves = leaves(self.tree, "input")
        tensors = [[leaf for _, leaf in leaves(list(one)) if isinstance(leaf, Tensor)] for one in inputs]
        for one in tensors[1:]:
            if [(t.shape, t.dtype) for t in one] != [(t.shape, t.dtype) for t in tensors[0]]:
                raise ValueError("get_inputs() makes tensors of other shapes or dtypes for another seed")
        large = [(t.is_floating_point() or t.is_complex()) and t.numel() >= SMALL for t in tensors[0]]
        found = [[yes and has_structure(one[i]) for one in tensors] for i, yes in enumerate(large)]
        self.mixed = [yes and not any(of) for yes, of in zip(large, found, strict=True)]
        # What has structure, and whether it is orthogonal; taken as it is where some results have and some have not.
        self.blended = {
            i: all(is_orthogonal(one[i]) for one in tensors) for i, of in enumerate(found) if large[i] and all(of)
        }
        whole = [i for i, t in enumerate(tensors[0]) if not t.is_floating_point() and not t.is_complex()]
        kinds = integers.kinds([[one[i] for i in whole] for one in tensors])
        self.kinds = {i: kind for i, kind in zip(whole, kinds, strict=True) if not kind.fixed}
        self.shapes = [tuple(t.shape) for t in tensors[0]]
        self.orders = [axis_order(t) for t in tensors[0]]
        self.pools = [
            [one[i].to(device).detach().permute(self.orders[i]).contiguous().reshape(-1) for one in tensors]
            for i in range(len(tensors[0]))
        ]

    @property
    def bytes(self) -> int:
        """Of one call's inputs."""
        return sum(leaf.nbytes for _, leaf in self.leaves if isinstance(leaf, Tensor))

    def recipe(self) -> Recipe:
        """A new one, by a generator that nobody can predict."""
        draw = self.chance.randrange
        found: list[tuple[int, ...]] = []
        chosen, apart, seed = draw(self.entries), draw(1, self.entries), draw(1 << 31)  # of integers, one for all
        for i, (mixed, pool) in enumerate(zip(self.mixed, self.pools, strict=True)):
            if i in self.kinds or i in self.blended:
                found.append((chosen, (chosen + apart) % self.entries, seed))
                continue
            first = draw(self.entries)
            if not mixed:
                found.append((first,))
                continue
            n = pool[0].numel()
            other = (first + draw(1, self.entries)) % self.entries
            length = draw(n // 4, n // 2 + 1)
            begin = draw(n - length + 1)
            found.append((first, draw(n), other, draw(n), begin, begin + length))
        return tuple(found)

    def leave_structure(self) -> None:
        """Take integers and what has structure as they are from now on: the model wants of them what mixing does not keep."""
        self.kinds, self.blended = {}, {}

    def _shaped(self, i: int, flat: Tensor) -> Tensor:
        """A tensor of the pool as the model gets it."""
        order = self.orders[i]
        back = sorted(range(len(order)), key=order.__getitem__)
        return flat.view([self.shapes[i][axis] for axis in order]).permute(back)

    def add(self, inputs: Any) -> Recipe:
        """Keep other inputs, as they are, and return the recipe that makes them: `recipe` draws from the first ones alone."""
        tensors = [leaf for _, leaf in leaves(list(inputs)) if isinstance(leaf, Tensor)]
        for pool, order, t in zip(self.pools, self.orders, tensors, strict=True):
            pool.append(t.to(pool[0].device).detach().permute(order).contiguous().reshape(-1))
        return tuple((len(pool) - 1,) for pool in self.pools)

    def pieces(self, recipe: Recipe) -> Iterator[list[Tensor]]:
        """Of each tensor of a recipe the vectors that it is made of, one after the other in the order of memory."""
        for i, (pool, (first, *rest)) in enumerate(zip(self.pools, recipe, strict=True)):
            if not rest:
                yield [pool[first]]
                continue
            if len(rest) == 2:
                one, another = (self._shaped(i, pool[entry]) for entry in (first, rest[0]))
                if i in self.blended:
                    made = _blend(one, another, rest[1], self.blended[i])
                else:
                    made = integers.mixed(self.kinds[i], one, another, rest[1])
                yield [made.permute(self.orders[i]).reshape(-1)]
                continue
            offset, other, from_, begin, end = rest
            of, n = pool[first], pool[first].numel()
            yield [
                *_range(of, offset, begin),
                *_range(pool[other], from_, end - begin),
                *_range(of, (offset + end) % n, n - end),
            ]
