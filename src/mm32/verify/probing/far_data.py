"""How far rounding may move outputs on data far from the usual, beyond what a perturbed float64 run shows."""

from __future__ import annotations

from ..inputs.catalogue import MILDER, MIXED, VARIATIONS, Variation
from ..judging.bounds import U32, Truth

# For extreme data: the factor by which the perturbed run's errors are multiplied, and the least error that is allowed, of
# the output's size. Taking the power of two of x log2(e) is honest, and is off by several roundings of x, where x is in the
# thousands.
MORE, GROSS = 4.0, 2.0**-9
# Of an output's size: with ENLARGED parameters, larger errors of a perturbed run are not multiplied.
STEADY = 2.0**-12
# The least error that is allowed for data of which some rows are far from the usual.
ROWS = 2.0**-15
# The least errors that are allowed for models of decays. Where logarithms of decays add up to hundreds and thousands,
# exponentials of differences of their sums are off by as many u.
FAR_DECAYS = {"times 100": GROSS, "graded": GROSS, "steady": GROSS, "planted": ROWS, MIXED: ROWS, "pointers": ROWS}
FAR_DECAYS["negative parameters"] = GROSS
FAR_DECAYS |= {v.name: GROSS for v in (*VARIATIONS, *MILDER.values()) if v.rare}
# Where a few entries are 100000 times as large as the others, a sum in order is less accurate beside them than the
# reference's sum.
ROUGH = {"rare large rows": 2.0**-17}
# Parameters with which the reference itself may lose most of its bits, and with which a few entries may decide the error of
# the whole.
ENLARGED = {"large parameters", "parameters times 4", "parameters times 2", "negative parameters", "large scales"} | {
    f"single parameters{name}" for name in ("", " turned", " times 4", " turned times 4")
}


def _least_error(name: str, extreme: bool, decays: bool) -> float:
    """Return how far an output may be off, of its size, for data of this name; 0 where only a perturbed run tells."""
    gross = GROSS if extreme else FAR_DECAYS.get(name, 0.0) if decays else 0.0
    return max(gross, ROUGH.get(name, 0.0))


def allow(truth: Truth, variation: Variation, decays: bool) -> None:
    """Widen a truth's bounds by what these data allow. `decays`: the model multiplies by exponentials step by step."""
    gross = _least_error(variation.data or variation.name, variation.extreme, decays)
    truth.extreme |= variation.equal or gross > 0
    truth.gross = gross > 0
    truth.steep = (not variation.state or bool(variation.data)) and not gross
    _widen(truth, gross, variation.name in ENLARGED)


def allow_mixed(truths: list[Truth], decays: bool) -> None:
    """Widen the bounds of a trial whose rows are those of several variations."""
    gross = _least_error(MIXED, extreme=False, decays=decays)
    for truth in truths:
        truth.gross = gross > 0
        truth.extreme |= truth.gross
        _widen(truth, gross)


def _widen(truth: Truth, gross: float, more: bool = False) -> None:
    """Multiply a perturbed run's errors by MORE, and make them at least `gross`. If `gross` is 0, do so only with `more`,
    and only where the errors are not large already: milder data say more then."""
    noise = truth.noise
    if noise is None or not (gross or (more and noise.normwise <= STEADY)):
        return
    noise.normwise = max(MORE * noise.normwise, gross)
    noise.componentwise = max(MORE * noise.componentwise, gross / U32)
    truth.forget()
