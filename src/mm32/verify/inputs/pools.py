"""Fresh inputs for every timed call, from private pools of the reference's own data.

Each call of a window that counts gets a result of the reference's get_inputs() that no call before it had (timing/fresh.py),
its unstructured floats rotated in memory by a random distance: a candidate that keeps answers meets none of their inputs
again. Tensors that hardly differ from one result to the next are mixed from several results, and so are all tensors of calls
for which no such result was made in time.

Mixed floats are one result, read from a random offset of its memory with wrap-around, with a range of random place and
length taken from another result at another offset. So values stay of the kind that get_inputs makes, and neither sums nor
single entries tell which result they come from. A tensor that is in order, symmetric, triangular or a distribution becomes a
mean of two results, weighted at random, which keeps that structure; an orthogonal one becomes a product of two.

Integers and booleans (indices, masks) are mixed entry by entry, each in its place (integers.py). Those that get_inputs()
makes the same each time, of 4 to 2^20 entries, get a few other entries in each call. Instead of copies the tool keeps
recipes: a recipe, which is a few numbers and the results that belong to its call alone, makes the same data again.

Buffers that forward changes are treated the same way: every call starts from a state of its own, which comes with its
inputs. It is a mean of two states that calls of the reference have left, weighted at random, or one of these states where
buffers are not floats.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from ..exchange.wire import DTYPE_NAMES, axis_order, leaves
from . import integers, regrouped
from .contents import LEAST, CannotVary, has_structure, is_orthogonal

SMALL = 16  # tensors of floats with fewer entries are not mixed
STATES = 8  # the most states that are made for a window
STATES_MORE = 3  # a random number of calls, less than this, comes before the first such state
ALIGNMENT = 512  # bytes; every tensor in a slot is aligned to this
# A tensor is never mixed if no more than this share of its entries, zeros aside, are the same in two results.
VARIES = 1 / 16
# Integers that are the same each time get no other entries in timed calls if they have more entries than this.
MOST_REMADE = 1 << 20
OTHERS = 3  # versions of such integers that are made; calls get mixtures of these
FEW, DRAWS = 256, 8  # for tensors of such integers with at most FEW entries, up to DRAWS draws are tried
# Where a tensor's data come from: the number of an entry of the pool, or a flat tensor that the recipe alone keeps.
Source = int | Tensor
# For each tensor (source,) or (source, offset, source, offset, begin, end); for integers and structured tensors (source,
# source, seed).
Recipe = tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Part:
    """Where a tensor lies in each slot of a region: at offset + slot * step, in bytes. A leaf that is no tensor has only a
    path."""

    path: str
    dtype: torch.dtype | None = None
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    bytes: int = 0
    offset: int = 0
    step: int = 0

    def described(self) -> dict[str, Any]:
        """Return the fields for the worker."""
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
        """Return the tensor of a slot, as a view of `memory`, the region's bytes."""
        assert self.dtype is not None
        at = self.at(slot)
        return memory[at : at + self.bytes].view(self.dtype).as_strided(self.shape, self.strides)

    def at(self, slot: int) -> int:
        """Return the first byte of the tensor in a slot."""
        return self.offset + slot * self.step


def parts(values: Sequence[tuple[str, Any]], start: int, count: int) -> tuple[list[Part], int]:
    """Return the places of the tensors among `values` (path, leaf) in `count` slots, from byte `start` on, and the byte
    where they end."""
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
    """Return `length` entries of a vector from `begin` on, in pieces: where the vector ends, they go on at its beginning."""
    found = [t[begin : begin + length], t[: max(0, begin + length - t.numel())]]
    return [piece for piece in found if piece.numel()]


def _blend(one: Tensor, other: Tensor, seed: int, orthogonal: bool) -> Tensor:
    """Return a mean of both, which keeps every convex property; of orthogonal matrices the product, with an even number of
    rows negated."""
    if orthogonal:
        generator = torch.Generator(one.device).manual_seed(seed)
        signs = torch.randint(0, 2, (one.shape[-1], 1), generator=generator, device=one.device) * 2 - 1
        signs[0] *= signs.prod()
        wide = torch.complex128 if one.is_complex() else torch.float64
        return (one.to(wide) @ other.to(wide) * signs).to(one.dtype)
    weight = 0.1 + 0.8 * (seed / 2**31)
    return torch.lerp(other, one, weight)


def _varies(one: Tensor, other: Tensor) -> bool:
    """Whether hardly any entry is the same in two results of get_inputs()."""
    return int(((one == other) & (one != 0)).sum()) <= VARIES * one.numel()


def _flat(t: Tensor, order: Sequence[int], device: torch.device) -> Tensor:
    """Return a tensor's entries on a device, in the memory order `order` of its axes."""
    return t.to(device).detach().permute(list(order)).contiguous().reshape(-1)


def _between(one: Tensor, other: Tensor, seed: int) -> Tensor:
    """Return a mean of two states, weighted by the seed."""
    wide = torch.complex128 if one.is_complex() else torch.float64
    return torch.lerp(other.to(wide), one.to(wide), 0.1 + 0.8 * (seed / 2**31)).to(one.dtype)


class Pools:
    """The data from which the inputs of timed calls are made.

    `inputs`: two or more results of get_inputs(), with tensors alike; kept on `device`. `state`: the buffers that forward
    changes, as a call that is not timed finds them.

    `fresh`: if set, it makes up to a given number of further results, each as flat tensors in the memory order of the first
    results. `left`: if set, it makes up to a given number of states.
    """

    fresh: Callable[[int], list[list[Tensor]]] | None = None
    left: Callable[[int], list[dict[str, Tensor]]] | None = None

    def __init__(
        self, inputs: Sequence[Sequence[Any]], device: torch.device, state: Mapping[str, Tensor] = MappingProxyType({})
    ):
        self.entries = len(inputs)
        self.chance = random.SystemRandom()
        self.tree = list(inputs[0])
        self.leaves = leaves(self.tree, "input")
        tensors = [[leaf for _, leaf in leaves(list(one)) if isinstance(leaf, Tensor)] for one in inputs]
        for one in tensors[1:]:
            if [(t.shape, t.dtype) for t in one] != [(t.shape, t.dtype) for t in tensors[0]]:
                raise ValueError("get_inputs() makes tensors of other shapes or dtypes for another seed")
        self.remade = self._remake(tensors)
        large = [(t.is_floating_point() or t.is_complex()) and t.numel() >= SMALL for t in tensors[0]]
        found = [[yes and has_structure(one[i]) for one in tensors] for i, yes in enumerate(large)]
        self.mixed = [yes and not any(of) for yes, of in zip(large, found, strict=True)]
        # Tensors that have structure, and whether they are orthogonal. A tensor that has structure in some results only is
        # taken as it is.
        self.blended = {
            i: all(is_orthogonal(one[i]) for one in tensors) for i, of in enumerate(found) if large[i] and all(of)
        }
        whole = [i for i, t in enumerate(tensors[0]) if not t.is_floating_point() and not t.is_complex()]
        kinds = integers.kinds([[one[i] for i in whole] for one in tensors])
        self.kinds = {i: kind for i, kind in zip(whole, kinds, strict=True) if not kind.fixed}
        # The original again where its versions would not be mixed.
        for i in [i for i in self.remade if i not in self.kinds]:
            for one in tensors:
                one[i] = self.remade[i][0]
            del self.remade[i]
        pairs = list(itertools.pairwise(tensors))
        drawn = [i for i in self.kinds if i not in self.remade]
        of_whole = all(not torch.equal(a[i], b[i]) for a, b in itertools.combinations(tensors, 2) for i in drawn)
        # Which tensors are new in each result already. Integers may belong together, so they are all taken from one result
        # or all mixed.
        self.varies = [
            i in self.remade or of_whole if i in self.kinds else large[i] and all(_varies(a[i], b[i]) for a, b in pairs)
            for i in range(len(tensors[0]))
        ]
        self.shapes = [tuple(t.shape) for t in tensors[0]]
        self.orders = [axis_order(t) for t in tensors[0]]
        self.pools = [[_flat(one[i], self.orders[i], device) for one in tensors] for i in range(len(tensors[0]))]
        self.of_inputs = len(self.pools)
        self.state = list(state)  # names of buffers
        self.vary_state = True
        self.left_now: list[list[Tensor]] = []  # states for the calls of the window that is being made
        if state:
            self.tree.append(dict(state))
            self.leaves = leaves(self.tree, "input")
            self.shapes += [tuple(t.shape) for t in state.values()]
            self.orders += [axis_order(t) for t in state.values()]
            self.between = all(t.is_floating_point() or t.is_complex() for t in state.values())
            self.usual = self._flat_state(state, device)
            self.pools += [[t] for t in self.usual]
            self.states = [self.usual]

    def _remake(self, results: Sequence[list[Tensor]]) -> dict[int, list[Tensor]]:
        """Replace a few entries of integers and booleans that are the same in all `results`, in each result but the first.

        Return, by index, each such tensor and its versions with other entries. A candidate that keeps answers by these
        tensors gains nothing then. Tensors that have no such versions, such as offsets in order and blocks of booleans,
        stay.
        """
        found: dict[int, list[Tensor]] = {}
        for i, t in enumerate(results[0]):
            whole = not t.is_floating_point() and not t.is_complex() and LEAST <= t.numel() <= MOST_REMADE
            if not whole or not all(torch.equal(t, one[i]) for one in results[1:]):
                continue
            others = [other for _ in range(OTHERS) if (other := self._with_others(t)) is not None]
            if len(others) < OTHERS:
                continue
            found[i] = [t, *others]
            for number, one in enumerate(results[1:]):
                one[i] = others[number % OTHERS]
        return found

    def _with_others(self, t: Tensor) -> Tensor | None:
        """Return a version of the tensor with a few other entries, None where there is none. In a tensor of few entries one
        draw may change nothing by chance, so several are tried."""
        for _ in range(DRAWS if t.numel() <= FEW else 1):
            generator = torch.Generator(t.device).manual_seed(self.chance.randrange(1 << 62))
            with contextlib.suppress(CannotVary):
                made = regrouped.replaced([t], generator)[0]
                assert isinstance(made, Tensor)
                return made
        return None

    def _anew(self, i: int) -> Tensor:
        """Return a version of integers that are the same each time, for one call: a mixture of two versions, entry by entry."""
        one, other = self.chance.sample(self.remade[i], 2)
        made = integers.mixed(self.kinds[i], one, other, self.chance.randrange(1 << 31))
        return _flat(made, self.orders[i], self.pools[i][0].device)

    def keep_constants(self) -> bool:
        """From now on, take tensors that are the same each time as they are. Return whether any had been given other entries."""
        for i, (t, *_) in self.remade.items():
            flat = _flat(t, self.orders[i], self.pools[i][0].device)
            self.pools[i] = [flat for _ in self.pools[i]]
            self.kinds.pop(i, None)
        had, self.remade = bool(self.remade), {}
        return had

    def _flat_state(self, state: Mapping[str, Tensor], device: torch.device) -> list[Tensor]:
        orders = self.orders[self.of_inputs :]
        return [_flat(state[name], order, device).clone() for name, order in zip(self.state, orders, strict=True)]

    def _leave_states(self, calls: int) -> None:
        """Prepare states for so many calls, which no call before has seen."""
        if not self.state or not self.vary_state or self.left is None:
            return
        like = [(t.numel(), t.dtype) for t in self.usual]
        wanted = min(calls, STATES)
        left = self.left(wanted + self.chance.randrange(STATES_MORE))[-wanted:]
        found = [self._flat_state(one, self.usual[0].device) for one in left]
        found = [one for one in found if [(t.numel(), t.dtype) for t in one] == like]
        self.states = [self.usual, *found] if found else self.states
        self.left_now = [one for _, one in zip(range(calls), itertools.cycle(found), strict=False)]
        self.chance.shuffle(self.left_now)

    def _state_of_a_call(self) -> Recipe:
        """Return the recipe of a call's state. Each state that was left for this window is used once, as far as there are
        enough of them. Calls that do not count start from the usual state where states have no mean."""
        if not self.state:
            return ()
        if not self.vary_state or len(self.states) == 1:
            return tuple((t,) for t in self.usual)
        if self.left_now:
            one = self.left_now.pop()
        else:
            one = self.chance.choice(self.states) if self.between else self.usual
        if not self.between:
            return tuple((t,) for t in one)
        other, seed = self.chance.choice([s for s in self.states if s is not one]), self.chance.randrange(1 << 31)
        return tuple((a, b, seed) for a, b in zip(one, other, strict=True))

    def state_of(self, recipe: Recipe) -> dict[str, Tensor]:
        """Return the buffers that a recipe's call starts from."""
        pieces = list(self.pieces(recipe))[self.of_inputs :]
        found = {}
        for i, (name, (flat,)) in enumerate(zip(self.state, pieces, strict=True), self.of_inputs):
            found[name] = self._shaped(i, flat)
        return found

    def always_same(self, mixed: bool = False) -> list[int]:
        """Return which leaves of the inputs are tensors that are the same in every call, except those of fewer than LEAST
        entries; with `mixed`, those that are made of parts of one tensor in every call."""
        places = [i for i, (_, leaf) in enumerate(self.leaves) if isinstance(leaf, Tensor)]
        return [
            places[j]
            for j in range(self.of_inputs)
            if self.mixed[j] == mixed
            and self.pools[j][0].numel() >= LEAST
            and all(torch.equal(self.pools[j][0], other) for other in self.pools[j][1:])
        ]

    @property
    def bytes(self) -> int:
        """The bytes of one call's inputs and state."""
        return sum(leaf.nbytes for _, leaf in self.leaves if isinstance(leaf, Tensor))

    def recipe(self) -> Recipe:
        """Return a new recipe for the pool's own results, drawn by a generator that nobody can predict."""
        return self._mixed_of(self._own)

    def recipes(self, count: int) -> list[Recipe]:
        """Return `count` recipes for a window that counts: of results that no call had before, as far as these can be made."""
        self._leave_states(count)
        made = self.fresh(count) if self.fresh is not None else []
        for one in made:
            for i in self.remade:
                one[i] = self._anew(i)
        found = [self._of(one, [other for other in made if other is not one] or self._own) for one in made]
        rest = made if len(made) > 1 else [*made, *self._own]
        found += [self._mixed_of(rest) for _ in range(count - len(made))]
        self.chance.shuffle(found)
        self.left_now = []
        return found

    @property
    def _own(self) -> list[Sequence[Source]]:
        return [[entry] * self.of_inputs for entry in range(self.entries)]

    def _mixed_of(self, results: Sequence[Sequence[Source]]) -> Recipe:
        draw, count = self.chance.randrange, len(results)
        found: list[tuple[Any, ...]] = []
        chosen, apart, seed = draw(count), draw(1, count), draw(1 << 31)  # for integers, the same for all of them
        for i, mixed in enumerate(self.mixed):
            if i in self.kinds or i in self.blended:
                found.append((results[chosen][i], results[(chosen + apart) % count][i], seed))
                continue
            first = draw(count)
            other = (first + draw(1, count)) % count
            found.append(self._joined(i, results[first][i], results[other][i]) if mixed else (results[first][i],))
        return (*found, *self._state_of_a_call())

    def _of(self, one: Sequence[Source], others: Sequence[Sequence[Source]]) -> Recipe:
        """Return a recipe for a result that has not been used. Other results are mixed in only where it is like them."""
        draw = self.chance.randrange
        other, seed = self.chance.choice(others), draw(1 << 31)
        found: list[tuple[Any, ...]] = []
        for i, (mixed, of) in enumerate(zip(self.mixed, one, strict=True)):
            if self.varies[i] and mixed:
                found.append((of, draw(self.pools[i][0].numel()), of, 0, 0, 0))
            elif not self.varies[i] and mixed:
                found.append(self._joined(i, of, other[i]))
            elif not self.varies[i] and (i in self.kinds or i in self.blended):
                found.append((of, other[i], seed))
            else:
                found.append((of,))
        return (*found, *self._state_of_a_call())

    def _joined(self, i: int, one: Source, other: Source) -> tuple[Any, ...]:
        """Return the recipe of a tensor that is one source with a range of the other."""
        draw, n = self.chance.randrange, self.pools[i][0].numel()
        length = draw(n // 4, n // 2 + 1)
        begin = draw(n - length + 1)
        return one, draw(n), other, draw(n), begin, begin + length

    def leave_structure(self) -> None:
        """From now on, take integers and structured tensors as they are: the model needs something of them that mixing does
        not keep."""
        self.keep_constants()
        self.kinds, self.blended = {}, {}

    def _shaped(self, i: int, flat: Tensor) -> Tensor:
        """Return a tensor of the pool as the model gets it."""
        order = self.orders[i]
        back = sorted(range(len(order)), key=order.__getitem__)
        return flat.view([self.shapes[i][axis] for axis in order]).permute(back)

    def add(self, inputs: Any) -> Recipe:
        """Keep other inputs as they are, and return the recipe that makes them. `recipe` goes on to draw from the first
        inputs alone."""
        tensors = [leaf for _, leaf in leaves(list(inputs)) if isinstance(leaf, Tensor)]
        pools = self.pools[: self.of_inputs]
        for pool, order, t in zip(pools, self.orders[: self.of_inputs], tensors, strict=True):
            pool.append(_flat(t, order, pool[0].device))
        return (*((len(pool) - 1,) for pool in pools), *self._state_of_a_call())

    def pieces(self, recipe: Recipe) -> Iterator[list[Tensor]]:
        """Yield, for each tensor of a recipe, the vectors that it is made of, one after the other in memory order."""
        for i, (pool, (first, *rest)) in enumerate(zip(self.pools, recipe, strict=True)):
            one = _found(pool, first)
            if not rest:
                yield [one]
                continue
            if len(rest) == 2:
                shaped, another = self._shaped(i, one), self._shaped(i, _found(pool, rest[0]))
                if i >= self.of_inputs:
                    made = _between(shaped, another, rest[1])
                elif i in self.blended:
                    made = _blend(shaped, another, rest[1], self.blended[i])
                else:
                    made = integers.mixed(self.kinds[i], shaped, another, rest[1])
                yield [made.permute(self.orders[i]).reshape(-1)]
                continue
            offset, other, from_, begin, end = rest
            n = one.numel()
            yield [
                *_range(one, offset, begin),
                *_range(_found(pool, other), from_, end - begin),
                *_range(one, (offset + end) % n, n - end),
            ]


def _found(pool: Sequence[Tensor], source: Source) -> Tensor:
    return source if isinstance(source, Tensor) else pool[source]
