"""What the reference's operators tell of it: which variations would show something, and which numbers matter to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..inputs import catalogue, isolating, redrawn, states
from ..inputs.catalogue import Variation
from ..inputs.contents import has_structure
from ..judging.bounds import U32
from ..judging.draws import COMPARES, LIMITS, LOOKUPS, ORDERED
from ..judging.operator_mode import base_name
from ..judging.places import LOOKED_UP
from ..judging.rounding import EXACT
from . import constants

if TYPE_CHECKING:
    from .runner import ReferenceRunner

MOST_EDGES = 4096  # the most entries of a buffer whose numbers are put into inputs
ALL_BY_NAME = {
    variation.name: variation for variation in (*catalogue.VARIATIONS, *catalogue.MILDER.values(), *isolating.ISOLATING)
}
# Operators that make an infinite answer of a 0, which candidates may guard.
DIVIDES = {"div", "reciprocal", "rsqrt", "log", "log2", "log10", "log1p", "pow", "true_divide"}
SUMS = {"sum", "cumsum"}
VIEWS = {
    "view",
    "_unsafe_view",
    "_reshape_alias",
    "reshape",
    "permute",
    "transpose",
    "t",
    "squeeze",
    "unsqueeze",
    "expand",
}
VIEWS |= {"select", "slice", "detach", "alias", "unbind", "split", "split_with_sizes", "chunk", "unfold", "diagonal"}
FACTORS = (
    "linalg",
    "_linalg",
    "cholesky",
    "lu_",
    "triangular_solve",
    "geqrf",
    "ormqr",
    "inverse",
    "logdet",
    "svd",
    "qr",
)
# Those that may fail for matrices that are indefinite or nearly singular, by the beginnings of their names.
MAY_FAIL = (
    "linalg_cholesky", "cholesky", "linalg_inv", "inverse", "linalg_solve", "_linalg_solve", "linalg_eig", "_linalg_eig",
    "linalg_lu", "lu_", "_linalg_det", "_linalg_slogdet", "logdet", "linalg_ldl", "linalg_lstsq", "linalg_pinv",
)  # fmt: skip
# Factorisations that have an answer for matrices without full rank, but no certain one; and variations that make such matrices.
LEAST_SQUARES = ("linalg_lstsq", "linalg_pinv", "pinverse")
ORTHOGONAL = (*LEAST_SQUARES, "linalg_qr", "qr", "geqrf")
WITHOUT_FULL_RANK = {"impulses", "zero input", "zero rows", "constant", "steady", "opposed", "clustered"} | {
    "rare small rows", "rare equal rows", "alike inputs", "rare rows of parameters"
}  # fmt: skip
LONG_PRODUCTS = {"prod", "cumprod"}
BITS = {"__lshift", "__rshift", "__ilshift", "__irshift", "__and", "__or", "__xor"} | {
    f"bitwise_{name}" for name in ("and", "or", "xor", "not", "left_shift", "right_shift")
}
PLACES = ("grid_sampler", "searchsorted", "bucketize")  # operators that look something up by floating-point numbers
# Operators that turn absolute errors of their argument into relative errors of the result. For large arguments an honest kernel
# (exp2 of x log2 e) has such errors.
STEEP = ("exp", "softmax", "attention", "sin", "cos", "tan")
TINY = ("tiny rows", "times 1e-7")  # variations whose values are so small that in fp32 1 plus one of them is 1
# Variations with large values, which behind a steep operator would show nothing but these errors.
HIDDEN_BY_STEEP = (
    "aligned",
    "times 100000",
    "times 10000",
    "far below",
    "rare large rows",
)


class Traits:
    """What is known of a runner's model by the operators that it called."""

    def __init__(self, runner: ReferenceRunner):
        self.runner = runner

    def unsuited(self, name: str, variation: Variation | None, entries: int) -> str | None:
        """Return why this variation would show nothing, empty if that need not be reported; None if it may show something.
        `entries`: how many the output has."""
        if variation is not None and variation.data:
            assert self.runner.model is not None
            if not states.has_neutral(self.runner.model):
                return ""
            return self.unsuited(variation.data, ALL_BY_NAME[variation.data], entries)
        operators = self.runner.operators()
        if variation is not None and variation.isolating and not self.isolates(name, entries):
            return ""
        if variation is not None and variation.spreads and any(of in op for op in operators for of in PLACES):
            return "a NaN is no place: the reference looks something up by numbers of floating point"
        if variation is not None and variation.odd and any(op.startswith(LEAST_SQUARES) for op in operators):
            return "a least squares solver's answer to NaN and Inf is the library's choice"
        if name in WITHOUT_FULL_RANK and any(op.startswith(ORTHOGONAL) for op in operators):
            return "it would leave matrices without full rank, of which the solution is the library's choice"
        if name == "huge rows" and not operators <= EXACT | VIEWS:
            return ""
        if name in ("near one", "near zero") and not operators & LONG_PRODUCTS:
            return ""
        if name == "edges" and not operators & (COMPARES | LIMITS.keys()):
            return ""
        if name == "an Inf" and operators & LONG_PRODUCTS:
            return "an Inf times a long product that underflows is NaN in one order and Inf in another"
        if name in TINY and operators & ORDERED and self.is_steep():
            return "it would make ties of what the reference sorts, as far as fp32 goes: rounding decides the order"
        if name in HIDDEN_BY_STEEP and self.is_steep():
            return "it would turn the rounding of large values into errors of the answer"
        of_integers = self.runner.products or self.only_sums() or operators & BITS
        if name == "wide integers" and (self.lookups() or not of_integers):
            return ""
        if name == "whole range of bytes" and self.lookups():
            return ""
        if name == "impossible" and not operators & catalogue.LOGARITHMS:
            return ""
        if name == "zeros among integers" and any("ctc_loss" in op for op in operators):
            return ""  # 0 is the label of a blank, which no target may have
        return None

    def numbers(self) -> redrawn.Numbers:
        """Return the integers that the model divides by and compares with, as its operators and its script show them."""
        runner = self.runner
        assert runner.script is not None
        found = constants.numbers(runner.path.read_text(), vars(runner.script.module), runner.model)
        if runner.recorder is None:
            return found
        compared = {int(number) for number in runner.recorder.compared if number.is_integer()}
        return redrawn.Numbers(found.divisors | runner.recorder.divisors, found.compared | compared)

    def lookups(self) -> set[str]:
        """Return the operators that take integers as indices or lengths, which have limits, named as `ReferenceRunner.operators`
        does."""
        runner = self.runner
        names = runner.recorder.names if runner.recorder is not None else set()
        return {base_name(name) for name in names if any(word in name for word in LOOKUPS)}

    def edges(self, inputs: list[Any]) -> Tensor:
        """Return numbers that entries may be compared with: those of operators, of small buffers and of input vectors in order;
        and, no more often, those of small parameters, such as a tree's thresholds."""
        runner = self.runner
        assert runner.model is not None
        own, learned = (
            [t for t in kept if t.is_floating_point() and t.numel() <= MOST_EDGES]
            for kept in (runner.model.buffers(), runner.model.parameters())
        )
        own += [
            t for t in inputs if isinstance(t, Tensor) and t.is_floating_point() and t.dim() == 1 and has_structure(t)
        ]
        numbers = torch.tensor(
            sorted(runner.recorder.compared if runner.recorder is not None else ()), device=runner.device
        )
        found, others = (
            torch.cat([*first, *(t.detach().reshape(-1).float() for t in some)])
            for first, some in (([numbers], own), ([numbers[:0]], learned))
        )
        found, others = found[found.isfinite()], others[others.isfinite()]
        return torch.cat([found.repeat(max(1, -(-len(others) // max(1, len(found))))), others])

    def weights(self, inputs: list[Any]) -> list[Tensor]:
        """Return matrices that rows of data may be multiplied by: the model's, with convolutions flattened, and the inputs'."""
        assert self.runner.model is not None
        own = (
            t.detach().flatten(1)
            for t in (*self.runner.model.parameters(), *self.runner.model.buffers())
            if t.dim() > 1
        )
        given = (t.detach() for t in inputs if isinstance(t, Tensor) and t.dim() == 2)
        return [t for t in (*own, *given) if t.numel() and t.dtype != torch.bool and not t.is_complex()]

    def takes_apart(self) -> bool:
        """Return whether the model factors matrices or solves with them: not every matrix has a factor or an inverse."""
        return any(op.startswith(FACTORS) and "norm" not in op for op in self.runner.operators())

    def may_fail(self) -> bool:
        """Return whether the model factors matrices, or solves with them, by operators that may fail."""
        return any(op.startswith(MAY_FAIL) for op in self.runner.operators())

    def is_steep(self) -> bool:
        """Return whether the model takes exponentials or the like, which enlarge the rounding of large numbers."""
        return any(word in op.replace("expand", "") for op in self.runner.operators() for word in STEEP)

    def only_sums(self) -> bool:
        """Return whether the model has sums and no products."""
        operators = self.runner.operators()
        return bool(SUMS & operators) and not any("mul" in op or "pow" in op for op in operators)

    def may_rise(self, most: int) -> bool:
        """Return whether integers that are zero may become `most`. On a GPU an index that is too large ends the process's context
        if `Guard` does not know the operator."""
        runner = self.runner
        if runner.device.type == "cpu" or runner.recorder is None:
            return runner.device.type == "cpu"
        known = self.lookups() <= LOOKED_UP.keys()
        return known or runner.recorder.smallest is None or runner.recorder.smallest > most

    def isolates(self, name: str, entries: int) -> bool:
        runner = self.runner
        operators = runner.recorder.names if runner.recorder is not None else set()
        return runner.u <= U32 and isolating.fits(name, operators, runner.lengths, runner.products, entries)
