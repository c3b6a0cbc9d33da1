"""What all probes share: the time and the memory that there is for them, and the candidate's answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..exchange import handover
from ..exchange.wire import leaves
from ..judging.judge import Judgement
from ..processes.channel import Failure
from ..text import one_line
from .passed import PassedProbes

if TYPE_CHECKING:
    from ..compare import Comparison

ODD_RAISED = "NaN and Inf, on which it raises"
INDEFINITE_RAISED = "matrices that are not positive definite, on which it raises"
SINGULAR_RAISED = "matrices of probes that it cannot factor, on which it raises"
NAMED = 3  # the most such probes that are named
LINALG_ERRORS = ("LinAlgError", "_LinAlgError")
MOST_SINGULAR = 8  # the most probes that a candidate may raise on so
RAISES = "the candidate raises on it"
LATE = "left out for time"
UNSET = "the candidate's parameters cannot be set"
NO_MEMORY = "the card has no memory left to judge it"
MOST_UNJUDGED = 2  # the most probes that may be left out for lack of memory


def cannot_factor(failure: Failure) -> bool:
    """Return whether a worker raised because it could not factor a matrix, or solve with it."""
    return failure.kind == "raised" and str(failure.details.get("type")) in LINALG_ERRORS


class Prober:
    """The probes of one comparison, after its trials found nothing.

    Both processes are asked, and outputs judged, through the methods that `comparison` has for trials and probes. These
    leave the inputs and the output that they are about in its `inputs`, `varied` and `right`. What the self-test of the
    comparison needs goes into its `cases` and `made`; results go into its report.
    """

    def __init__(self, comparison: Comparison):
        self.comparison = comparison
        self.session = comparison.session
        self.report = comparison.report
        self.reference = comparison.reference
        self.truth = comparison.truth
        self.passed = PassedProbes()
        self.bits: list[float] = []  # bits that the candidate's arithmetic carries, by each kind of data that shows it
        self.singular: list[str] = []  # probes whose matrices the candidate could not factor
        self.waited = 0.0  # seconds of waiting for other verifications
        self.begun = 0.0  # when the last probe began

    def run(self, begin: float) -> Judgement:
        """Run all probes, which began at `begin`. The first that fails decides; the others are reported as well. Raises Stop
        and Failure."""
        raise NotImplementedError

    def next(self, name: str) -> None:
        """Begin a probe. Another verification that waits to measure goes first."""
        self.done()
        self.waited += self.session.let_others()
        self.session.at(f"probing: {name}")
        self.begun = time.monotonic()

    def done(self) -> None:
        """End the last probe: its record gets the seconds that it took."""
        for last in self.report.probes[-1:]:
            last.setdefault("seconds", round(time.monotonic() - self.begun, 3))

    def late(self, begin: float) -> bool:
        """Whether there is no time left for another probe."""
        spent = time.monotonic() - begin - self.comparison.excess_seconds - self.waited
        return spent + self.comparison.trial_seconds / 2 > self.session.probe_budget

    def output(self, seed: int, raised: str) -> tuple[Any, str]:
        """Return the candidate's output, or why there is none. `raised`: what the verdict's line says if the candidate raises on
        data on which that is no wrong answer, such as NaN; empty if it is one."""
        try:
            return self.comparison.output(seed), ""
        except Failure as failure:
            # A probe's matrices may be indefinite, or nearly singular, where the script's own are not.
            if not raised and self.comparison.factors and cannot_factor(failure):
                raised = self._singular()
            if not raised or failure.kind != "raised":
                raise
            if raised not in self.report.left_out:
                self.report.left_out.append(raised)
            return None, f"{RAISES}: {one_line(failure.message, 160)}"

    def _singular(self) -> str:
        """Note that the candidate could not factor the matrices of this probe. Return what the verdict's line says; empty if
        there have been too many such probes."""
        left_out = self.report.left_out
        left_out[:] = [said for said in left_out if not said.startswith(SINGULAR_RAISED)]
        self.singular.append(str(self.report.probes[-1]["name"]))
        if len(self.singular) > MOST_SINGULAR:
            return ""
        more = f" and {len(self.singular) - NAMED} more" if len(self.singular) > NAMED else ""
        return f"{SINGULAR_RAISED} ({', '.join(self.singular[:NAMED])}{more})"

    def without_memory(self, record: dict[str, Any]) -> None:
        """Leave out a probe that there was no memory to judge. No process waits for an answer, so the next one can be tried.
        Only a few may be left out, since a candidate that fills the card could have all of them left out: after these it
        raises OutOfMemoryError."""
        record |= {"status": "skipped", "reason": NO_MEMORY}
        self.session.short = True
        if sum(probe.get("reason") == NO_MEMORY for probe in self.report.probes) > MOST_UNJUDGED:
            raise torch.OutOfMemoryError(f"{MOST_UNJUDGED + 1} probes could not be judged")
        if self.session.card is not None:
            handover.free(self.session.card)

    def entries(self) -> int:
        return sum(leaf.numel() if isinstance(leaf, Tensor) else 1 for _, leaf in leaves(self.comparison.right))
