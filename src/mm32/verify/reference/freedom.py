"""Finds where NaN and Inf in the inputs decide nothing in the reference's output, and which other answers are right too."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..exchange import wire
from ..inputs.contents import kind
from ..judging import exact
from ..judging.bounds import rms
from ..judging.straight_through import StraightThrough
from ..judging.zeros import SkipsZeros
from ..worker.runner import Answer, Request, seed_everything

if TYPE_CHECKING:
    from .runner import ReferenceRunner

MOST_FREE = 64 << 20  # the most bytes of an output, and of another answer, that is examined
# Relative to an output's size: float64 entries that differ by less, with other numbers in an input, do not depend on these.
SAME_WITHIN = 2.0**-30


@contextlib.contextmanager
def _unless_it_fails() -> Iterator[None]:
    """Ignore what the model raises, except a lack of memory, which says nothing about the model."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except Exception:
        pass


class Freedom:
    """Looks for what a runner's model leaves open about NaN and Inf. Outputs of more than MOST_FREE bytes are not examined."""

    def __init__(self, runner: ReferenceRunner):
        self.runner = runner

    def free(self, request: Request) -> Answer:
        """Return, for each tensor of the output, which entries do not depend on the inputs that are NaN or infinite ("free"), and
        their values. With other numbers in place of these inputs such entries are the same, but for rounding. Examples are
        a product with 0, as behind a mask, which a kernel may skip, and a Fourier transform. "others" are whole outputs that are
        right too: those of the model with products that skip zeros, with y for a straight-through estimator's x + (y - x), and
        with both. Nothing is returned where it is not known.
        "compares": the model does nothing for NaN, so if a NaN leads to a number, it does so by a comparison. "short": there is
        no memory to find this out."""
        return self.runner.with_memory(partial(self._found, request))

    def _found(self, request: Request) -> Answer:
        runner = self.runner
        usual, spec = runner.usual
        found = self._free(usual, spec, pytree.tree_leaves(runner.inputs), request["seed"])
        finite = all(bool(t.isfinite().all()) for t in usual if isinstance(t, Tensor) and t.is_floating_point())
        return {
            "value": {
                "free": found,
                "others": runner.copy(self._others(request["seed"], runner.last)) if found else [],
            },
            "compares": finite and runner.recorder is not None and not runner.recorder.asks_nan,
        }

    def _free(self, usual: list[Any], spec: Any, odd: list[Any], seed: int) -> list[Any]:
        runner = self.runner
        if not usual:
            return []
        outputs, variants = [], []
        # The usual numbers in place of NaN and Inf, then numbers so large, of either sign, that they would decide a maximum.
        for sign in (0, 1, -1):
            given = [
                torch.where(t.isfinite() | ~x.isfinite(), x, x if sign == 0 else sign * (100 * _largest(x) + 1))
                if isinstance(t, Tensor) and t.is_floating_point()
                else x
                for t, x in zip(odd, usual, strict=True)
            ]
            seed_everything(seed)
            variants.append(given)
            with _unless_it_fails():
                outputs.append([t for _, t in wire.leaves(runner.call(pytree.tree_unflatten(given, spec)))])
            runner.restore_state()
        if len(outputs) != 3 or any([kind(t) for t in one] != [kind(t) for t in outputs[0]] for one in outputs):
            return []
        apart = self._apart(variants, spec, seed, outputs[0])
        found: list[Any] = []
        for i, (a, *others) in enumerate(zip(*outputs, strict=True)):
            if not isinstance(a, Tensor) or not a.is_floating_point() or a.nbytes > MOST_FREE:
                found.append(None)
                continue
            same = torch.ones_like(a, dtype=torch.bool)
            for other in others:
                same &= a == other
            if apart:
                same |= apart[i]
            same &= a.isfinite()
            found.append([same, a])
        return runner.copy(found)

    def _apart(self, variants: list[list[Any]], spec: Any, seed: int, like: list[Any]) -> list[Tensor]:
        """Return, for each tensor of the output, which entries are the same in float64, but for its rounding, for all of these
        inputs; empty if this is not known. In fp32 a Fourier transform spreads the rounding of a large number over its whole
        result."""
        runner = self.runner
        assert runner.model is not None
        outputs: list[list[Any]] = []
        with _unless_it_fails(), exact.DoubleModel(runner.model, runner.float64.drawn(seed)) as twin:
            for given in variants:
                values = twin(pytree.tree_unflatten(given, spec), None, runner.names)
                outputs.append([t for _, t in wire.leaves(values)])
        runner.restore_state()
        shapes = [getattr(t, "shape", None) for t in like]
        if len(outputs) != len(variants) or any([getattr(t, "shape", None) for t in one] != shapes for one in outputs):
            return []
        found = []
        for a, *others in zip(*outputs, strict=True):
            if not isinstance(a, Tensor) or not (a.is_floating_point() or a.is_complex()):
                found.append(torch.zeros(()))
                continue
            same = torch.ones_like(a, dtype=torch.bool)
            for other in others:
                size = max(rms(a), rms(other))
                same &= ~((a - other).abs() > SAME_WITHIN * (a.abs() + size)) & other.isfinite()
            found.append(same)
        return found

    def _others(self, seed: int, like: Any) -> list[list[Any]]:
        """Return the outputs that a kernel may make for the present inputs instead of `like`: those of a model that skips zeros
        in its products, of one that replaces its straight-through estimators by what they stand for, and of one that does both.
        Only those that differ from `like` and from each other are returned."""
        runner = self.runner
        own = [t for _, t in wire.leaves(like)]
        found: list[list[Any]] = []
        for skips, straight in ((True, False), (False, True), (True, True)):
            seed_everything(seed)
            one: list[Any] = []
            estimators = StraightThrough()
            with _unless_it_fails(), contextlib.ExitStack() as modes:
                if skips:
                    modes.enter_context(SkipsZeros())
                if straight:
                    modes.enter_context(estimators)
                one = [t for _, t in wire.leaves(runner.call(runner.inputs))]
            runner.restore_state()
            if straight and not estimators.found:
                break
            size = sum(t.nbytes for t in one if isinstance(t, Tensor))
            if [kind(t) for t in one] != [kind(t) for t in own] or size > MOST_FREE:
                continue
            if not any(_alike(one, other) for other in (own, *found)):
                found.append(one)
        return found


def _alike(one: list[Any], other: list[Any]) -> bool:
    """Return whether the tensors of two outputs of the same shapes are equal."""
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True) if isinstance(a, Tensor))


def _largest(t: Tensor) -> Tensor:
    """Return the largest absolute value among the finite entries: a mask that is added holds -Inf."""
    return t.abs().nan_to_num(0.0, 0.0, 0.0).max() if t.numel() else t.new_zeros(())
