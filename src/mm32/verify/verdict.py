"""The possible verdicts, the exit code of each, and below how many bits the verdict's line claims less."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum


class Verdict(str, Enum):
    """What a verification comes to, from best to worst."""

    FASTER = "SAME, FASTER"
    SLOWER = "SAME, SLOWER"
    INCONCLUSIVE = "SAME, SPEED INCONCLUSIVE"
    SUSPECT = "SAME, TIMES SUSPECT"
    DIFFERENT = "DIFFERENT"
    NOT_BUILT = "COULD NOT BUILD"
    CRASHED = "CRASHED"
    TIMED_OUT = "TIMED OUT"
    REFERENCE_FAILED = "REFERENCE FAILED"
    NO_VERDICT = "NO VERDICT"
    TOOL_FAILED = "TOOL FAILED"

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self]

    @property
    def of_candidate(self) -> bool:
        """Whether it says something about the candidate: not if the reference, the check or this tool failed."""
        return self not in (Verdict.REFERENCE_FAILED, Verdict.NO_VERDICT, Verdict.TOOL_FAILED)

    @property
    def same(self) -> bool:
        return self in (Verdict.FASTER, Verdict.SLOWER, Verdict.INCONCLUSIVE, Verdict.SUSPECT)


# How the reference is timed, in words for a reader, by the name of the option.
BASELINE_NAMES = {"eager": "eager torch", "compile": "torch.compile", "tf32": "torch in TF32"}
# If errors on the script's own data show fewer bits than this, the bits that probes' data show say nothing about that data.
OWN_BITS = 19.0

# 2 is a wrong command line, 70 an error in this tool, 130 an interrupt.
EXIT_CODES = {
    Verdict.FASTER: 0,
    Verdict.SLOWER: 1,
    Verdict.INCONCLUSIVE: 3,
    Verdict.SUSPECT: 4,
    Verdict.DIFFERENT: 5,
    Verdict.NOT_BUILT: 6,
    Verdict.CRASHED: 7,
    Verdict.TIMED_OUT: 8,
    Verdict.REFERENCE_FAILED: 9,
    Verdict.NO_VERDICT: 10,
    Verdict.TOOL_FAILED: 70,
}
EXIT_MEANINGS = {
    0: "same and faster",
    1: "same, slower",
    2: "wrong usage",
    3: "same, speed inconclusive (the interval is not clear of 1)",
    4: "same, times suspect (the reference was slower beside the candidate, or a call by itself gains nothing)",
    5: "different",
    6: "the candidate could not be built or loaded",
    7: "the candidate crashed",
    8: "the candidate timed out",
    9: "the reference itself failed",
    10: "no verdict: the check could not have failed",
    70: "an error in this tool itself",
    130: "interrupted",
}


def closeness_of(pairs: Iterable[tuple[float, float]]) -> float:
    """Return the largest ratio of an error to its bound among pairs of both: above 1 a bound is exceeded. NaN if an error is."""
    ratios = [error / bound if bound > 0 else (0.0 if error == 0 else math.inf) for error, bound in pairs]
    return math.nan if any(r != r for r in ratios) else max(ratios)
