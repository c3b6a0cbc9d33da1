"""Integers that get_inputs draws from a range, put where chance hardly puts them.

They are put at the ends of the range, on numbers that the model compares them with or divides by, and next to equal ones.

get_inputs() runs under a mode that intercepts what draws integers: `torch.randint` and its kin, `randint` and `randrange` of
Python's random, and `numpy.random.randint`; where get_inputs makes integers out of fractions itself, also `torch.rand` and
its kin. Some entries of what these return become others of the same range. So get_inputs could have made these inputs by
chance, whatever it makes of the integers: sorted lengths, masks, offsets.
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

# The most drawing calls whose integers are changed. After these, a script that draws until it likes the result gets its own
# numbers.
MOST_CALLS = 256
DIFFERENT = 8  # multiples, each of another set of divisors, that the entries of one call may become
# A single number can take only one value in a probe, so the variations in REPEATED are run this often where an input holds
# few integers.
TURNS = 3
BESIDE = (0, -1, 1)  # offsets from multiples, in turn
FRACTIONS = 1 << 24  # steps from 0 to 1 in which torch.rand draws in fp32

# Returns others for some integers, of the range from the first number to the second one (both included).
Choose = Callable[[Tensor, int, int, torch.Generator], Tensor]


@dataclass(frozen=True)
class Numbers:
    """Integers that a model divides by (`divisors`), and that it compares with (`compared`)."""

    divisors: frozenset[int] = frozenset()
    compared: frozenset[int] = frozenset()


class Redraw(Mode):
    """A mode under which `choose` changes the integers that are drawn, and with `fractions` also numbers from 0 to 1.

    `drawn`: how many calls drew from a range. `changed`: whether any number was changed. `cast`: whether integers were made
    of fractions.
    """

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
        with _disable_current_modes():  # `choose` draws numbers too
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
    """Return what the variation `name` does with integers that are drawn; None if `numbers` has none for it. Where entries
    are few, consecutive seeds put them on different numbers for the variations in REPEATED."""
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
        exact = sorted(numbers.compared, key=abs, reverse=True)  # 0 comes last: the variations above ask about it
        around = [*exact, *(number + by for number in exact for by in (1, -1))]
        return lambda own, low, last, generator: _of(
            own, [number for number in dict.fromkeys(around) if low <= number <= last], generator, turn
        )
    return None


REPEATED = ("multiples among integers", "integers on edges")
OF_ANY_RANGE = ("smallest integers", "largest integers", "equal integers")  # these apply to fractions too
NAMES = (*OF_ANY_RANGE, *REPEATED)


def _some(own: Tensor, new: Tensor, generator: torch.Generator) -> Tensor:
    """Replace half of the entries by those of `new`; all of them where there are few."""
    return new if own.numel() < LEAST else torch.where(few(own, 2, generator), new, own)


def _of(own: Tensor, numbers: Sequence[int], generator: torch.Generator, turn: int) -> Tensor:
    """Set entries to one of `numbers` each. Few entries take them in order, TURNS apart, from number `turn` on."""
    if not numbers:
        return own
    known = torch.tensor(numbers, device=own.device)
    if own.numel() < LEAST:
        places = torch.arange(own.numel(), device=own.device) * TURNS + turn
        return known[places % len(numbers)].reshape(own.shape)
    places = torch.randint(0, len(numbers), own.shape, generator=generator, device=own.device)
    return _some(own, known[places], generator)


def _as_the_one_before(own: Tensor, low: int, last: int, generator: torch.Generator) -> Tensor:
    """Make half of the entries equal to the one before them, along the last axis that is longer than one."""
    axis = next((axis for axis in reversed(range(own.dim())) if own.shape[axis] > 1), None)
    if axis is None:
        return own
    rows = own.movedim(axis, -1)
    stays = torch.rand(rows.shape, generator=generator, device=own.device) < 0.5
    stays[..., 0] = True
    places = torch.arange(rows.shape[-1], device=own.device).expand(rows.shape)
    return rows.gather(-1, torch.where(stays, places, 0).cummax(-1).values).movedim(-1, axis)


def _multiples(low: int, last: int, generator: torch.Generator, divisors: Sequence[int], turn: int) -> Iterator[int]:
    """Yield multiples of as many of the divisors at once as the range has a multiple of, the divisors taken in random order.
    Every third number is one less than a multiple, and every third one more: (step + 1) % 100 is as usual."""
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
