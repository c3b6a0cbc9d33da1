"""Integers that get_inputs draws from a range, put where chance hardly puts them: at its ends, on numbers that the model
compares them with or divides by, and next to equal ones.

get_inputs() runs while a mode stands between it and what draws integers: `torch.randint` and its kin, `randint` and `randrange`
of Python's random, and `numpy.random.randint`; where it makes integers of fractions itself, also `torch.rand` and its kin. Of
what these return, some entries become others of the same range. So the inputs are such as get_inputs could have made by chance,
whatever it makes of these integers: sorted lengths, masks, offsets.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from ..judging.operator_mode import Mode, arguments
from ..judging.steps import WHOLE
from .contents import LEAST, few

# Calls that draw, of which integers are changed. A script that draws until it likes what it has gets its own numbers then.
MOST_CALLS = 256
DIFFERENT = 8  # multiples, of different sets of divisors, that entries of one call become
# Of a single number a probe asks one at a time: these variations come so often where an input holds few integers.
TURNS = 3
BESIDE = (0, -1, 1)  # of multiples, by turn
FRACTIONS = 1 << 24  # steps from 0 to 1 of what torch.rand draws in fp32

# Of integers from the first number to the second one, others.
Choose = Callable[[Tensor, int, int, torch.Generator], Tensor]


@dataclass(frozen=True)
class Numbers:
    """Integers that a model divides by, and that it compares with."""

    divisors: frozenset[int] = frozenset()
    compared: frozenset[int] = frozenset()


class Redraw(Mode):
    """While it is on, `choose` changes what is drawn, with `fractions` also numbers from 0 to 1. `drawn`: how many calls drew
    from a range; `changed`: whether any number is another one; `cast`: whether integers were made of fractions."""

    def __init__(self, choose: Choose, seed: int, fractions: bool = False):
        super().__init__()
        self.drawn, self.changed, self.cast = 0, False, False
        self._fractions = fractions
        self._choose, self._seed = choose, seed
        self._generators: dict[torch.device, torch.Generator] = {}
        self._outside: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Redraw:
        ours = (
            (random, "randint", self._randint),
            (random, "randrange", self._randrange),
            (np.random, "randint", self._numpy),
        )
        self._outside = [(module, name, getattr(module, name)) for module, name, _ in ours]
        for module, name, function in ours:
            setattr(module, name, function)
        return cast(Redraw, super().__enter__())

    def __exit__(self, *error: Any) -> None:
        for module, name, function in self._outside:
            setattr(module, name, function)
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = func._schema.name
        if name == "aten::_to_copy":
            self.cast |= kwargs.get("dtype") in WHOLE and args[0].is_floating_point()
        if self._fractions and name in ("aten::rand", "aten::rand_like", "aten::uniform_") and out.is_floating_point():
            given = arguments(func, args, kwargs)
            if (given.get("from", 0), given.get("to", 1)) == (0, 1):
                own = (out.double() * FRACTIONS).long()
                steps = self._others(own, 0, FRACTIONS - 1)
                out.copy_(torch.where(steps == own, out.double(), steps / FRACTIONS))
            return out
        if name not in ("aten::randint", "aten::randint_like", "aten::random_") or not isinstance(out, Tensor):
            return out
        given = arguments(func, args, kwargs)
        low = given.get("low", given.get("from"))
        end = given.get("high", given.get("to"))
        if isinstance(end, int):
            out.copy_(self._others(out.to(torch.int64), int(low or 0), end - 1))
        return out

    def _randint(self, first: int, last: int) -> int:
        return self._number(int(first), int(last), self._outside[0][2](first, last))

    def _randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        drawn = int(self._outside[1][2](start, stop, step))
        first, end = (0, start) if stop is None else (start, stop)
        return self._number(int(first), int(end) - 1, drawn) if step == 1 else drawn

    def _numpy(self, low: Any, high: Any = None, size: Any = None, dtype: Any = int) -> Any:
        drawn = self._outside[2][2](low, high, size, dtype)
        first, end = (0, low) if high is None else (low, high)
        if not (np.isscalar(first) and np.isscalar(end)) or np.dtype(dtype).kind not in "iu":
            return drawn
        with _disable_current_modes():  # what chooses draws too
            own = torch.as_tensor(np.asarray(drawn, dtype=np.int64), device="cpu")
            new = self._others(own, int(cast(int, first)), int(cast(int, end)) - 1).numpy()
        return new.astype(drawn.dtype) if isinstance(drawn, np.ndarray) else type(drawn)(new)

    def _number(self, low: int, last: int, drawn: int) -> int:
        with _disable_current_modes():
            return int(self._others(torch.tensor(drawn, device="cpu"), low, last))

    def _others(self, own: Tensor, low: int, last: int) -> Tensor:
        self.drawn += 1
        if self.drawn > MOST_CALLS or last <= low or not own.numel():
            return own
        generator = self._generators.get(own.device)
        if generator is None:
            generator = self._generators[own.device] = torch.Generator(own.device).manual_seed(self._seed)
        new = self._choose(own, low, last, generator)
        self.changed |= not torch.equal(new, own)
        return new


def choice(name: str, numbers: Numbers, seed: int) -> Choose | None:
    """What a variation of this name does with integers that are drawn; None where `numbers` are none for it. Where entries are
    few, seeds in a row put them on other numbers each (`REPEATED`)."""
    turn = seed % TURNS
    if name == "smallest integers":
        return lambda own, low, last, generator: _some(own, torch.full_like(own, low), generator)
    if name == "largest integers":
        return lambda own, low, last, generator: _some(own, torch.full_like(own, last), generator)
    if name == "equal integers":
        return _as_the_one_before
    if name == "multiples among integers" and numbers.divisors:
        divisors = sorted(numbers.divisors)
        return lambda own, low, last, generator: _of(
            own, [*_multiples(low, last, generator, divisors, turn)], generator, turn
        )
    if name == "integers on edges" and numbers.compared:
        exact = sorted(numbers.compared, key=abs, reverse=True)  # 0 is the last: what is special for it is asked above
        around = [*exact, *(number + by for number in exact for by in (1, -1))]
        return lambda own, low, last, generator: _of(
            own, [number for number in dict.fromkeys(around) if low <= number <= last], generator, turn
        )
    return None


REPEATED = ("multiples among integers", "integers on edges")
OF_ANY_RANGE = ("smallest integers", "largest integers", "equal integers")  # which fractions have too
NAMES = (*OF_ANY_RANGE, *REPEATED)


def _some(own: Tensor, new: Tensor, generator: torch.Generator) -> Tensor:
    """Half of the entries of `new`, the others as they are; all where there are few."""
    return new if own.numel() < LEAST else torch.where(few(own, 2, generator), new, own)


def _of(own: Tensor, numbers: Sequence[int], generator: torch.Generator, turn: int) -> Tensor:
    """Entries that become one of the numbers each: where they are few the first ones, in the first turn."""
    if not numbers:
        return own
    known = torch.tensor(numbers, device=own.device)
    if own.numel() < LEAST:
        places = torch.arange(own.numel(), device=own.device) * TURNS + turn
        return known[places % len(numbers)].reshape(own.shape)
    places = torch.randint(0, len(numbers), own.shape, generator=generator, device=own.device)
    return _some(own, known[places], generator)


def _as_the_one_before(own: Tensor, low: int, last: int, generator: torch.Generator) -> Tensor:
    """Half of the entries along the last axis that has several become what stands before them."""
    axis = next((axis for axis in reversed(range(own.dim())) if own.shape[axis] > 1), None)
    if axis is None:
        return own
    rows = own.movedim(axis, -1)
    stays = torch.rand(rows.shape, generator=generator, device=own.device) < 0.5
    stays[..., 0] = True
    places = torch.arange(rows.shape[-1], device=own.device).expand(rows.shape)
    return rows.gather(-1, torch.where(stays, places, 0).cummax(-1).values).movedim(-1, axis)


def _multiples(low: int, last: int, generator: torch.Generator, divisors: Sequence[int], turn: int) -> Iterator[int]:
    """Multiples of as many of the divisors at once as the range has multiples of, taken in random order. Every third one is one
    less, and every third one more: (step + 1) % 100 is as usual."""
    device = generator.device
    for number in range(DIFFERENT * TURNS):
        common = 1
        for i in torch.randperm(len(divisors), generator=generator, device=device).tolist():
            together = math.lcm(common, divisors[i])
            if max(1, -(-low // together)) <= last // together:
                common = together
        first, end = max(1, -(-low // common)), last // common
        times = int(torch.randint(first, max(first, end) + 1, (1,), generator=generator, device=device))
        found = common * times + BESIDE[number % TURNS]
        if common > 1 and low <= found <= last:
            yield found
        elif common > 1 and first <= end:
            yield common * times
