"""Whether a candidate's errors are those of a number format in its products, and how many bits of arithmetic they show."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..exchange.wire import leaves
from ..processes.channel import Failure
from .bounds import U32, Truth
from .formats import FORMATS, resembles
from .judge import Judgement

if TYPE_CHECKING:
    from ..processes.process import WorkerProcess
    from .truth import TruthSource

FINE = 4  # an error of up to so many u says nothing about the bits of the arithmetic
# At most so many u of a product's error may be the same in every order of its sums. The error of three fp16 products is 2 to 9 u.
ORDERED = 16.0
# An error of at most LEAST_ERROR u, of a product or any model, is not compared with number formats. For the candidate's errors
# to be those of a format, the output in this format may be off by at most FAR_OFF times as much as the candidate's.
LEAST_ERROR, FAR_OFF = 8.0, 5.0
NO_LIKENESS = "errors of fp32 sums, in whatever order, do not resemble these"


class Likeness:
    """Looks at one candidate's errors on the script's own data: of trials, then of timed calls."""

    def __init__(self, reference: WorkerProcess, truth: TruthSource):
        self.reference, self.truth = reference, truth
        self.own_bits: list[float] = []  # how many bits its errors show, for each trial
        self.formats = list(FORMATS)  # formats that its errors in all trials so far resemble
        self.timed: Counter[str] = Counter()  # by format, in how many outputs of timed calls its errors resemble it
        self.first_error: Tensor | None = None  # of a product's first trial, if sums or low precision make it large

    def keep_first(self, got: Any, truths: list[Truth], result: Judgement) -> None:
        """Keep the error of a product's first trial, if it is large."""
        if self.truth.contraction is not None and result.errors.normwise > ORDERED * U32:
            self.first_error = torch.sub(got, truths[0].exact).float() if _is_fp32(truths[0]) else None

    def count_bits(self, result: Judgement) -> None:
        """Note how many bits the candidate's errors on the script's own data show, the rounding of sums included."""
        error, own = result.errors.normwise, result.reference.normwise
        if result.measured and 0 <= error < math.inf:
            self.own_bits.append(24.0 if error <= max(4 * own, FINE * U32) else -math.log2(error))

    def of_trial(self, got: Any, truths: list[Truth], result: Judgement, seed: int, number: int) -> str:
        """Return what is wrong if the errors in the first two trials are those of a number format in products; else empty."""
        self.formats = self._alike(got, truths, result, seed, self.formats) if number < 2 else []
        if number == 0 or not self.formats:
            return ""
        return (
            f"output: its errors on the script's own data, {result.errors.normwise:.3g} normwise, are those of products with "
            f"operands of {self.formats[0]}, in each of two trials: {NO_LIKENESS}"
        )

    def of_timed_call(self, got: Any, truths: list[Truth], result: Judgement, seed: int, of: int) -> str:
        """Return the same for an output of a timed call, on the script's own data; `of`: how many such outputs are judged."""
        for name in self._alike(got, truths, result, seed, list(FORMATS)):
            self.timed[name] += 1
            if self.timed[name] >= min(2, of):
                return (
                    f"its errors, {result.errors.normwise:.3g} normwise, are those of products with operands of {name}, "
                    f"{'as were those of another call: ' if of > 1 else ''}{NO_LIKENESS}"
                )
        return ""

    def _alike(self, got: Any, truths: list[Truth], result: Judgement, seed: int, formats: Sequence[str]) -> list[str]:
        """Return those of `formats` that the candidate's errors resemble, for the data that the reference has now.

        Nothing is looked for if the errors are hardly larger than the reference's own.
        """
        error = result.errors.normwise
        if not result.measured or not (error > max(2 * result.reference.normwise, LEAST_ERROR * U32)):
            return []
        if self.truth.working > U32 or not any(_is_fp32(t) for t in truths) or not self.truth.products:
            return []
        alike = []
        for name in formats:
            try:
                reply = self.reference.ask("coarse", format=name, seed=seed)
            except Failure as failure:
                if failure.kind != "raised":
                    raise
                break  # it does not run in float64, or there is no memory for another run
            apart = reply.header.get("apart") or 0.0
            if not apart or apart > FAR_OFF * error:
                break  # the formats that follow are coarser, and further off still
            parts = zip(leaves(got), truths, leaves(reply.value), strict=True)
            if any(_is_fp32(truth) and resembles(one, truth.exact, rough) for (_, one), truth, (_, rough) in parts):
                alike.append(name)
        return alike


def _is_fp32(truth: Truth) -> bool:
    """Return whether the tensor is fp32 and all of it has a float64 truth."""
    found = isinstance(truth.exact, Tensor) and isinstance(truth.reference, Tensor) and truth.rows is None
    return found and truth.reference.dtype == torch.float32
