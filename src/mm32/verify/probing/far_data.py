"""What rounding makes of data far from the usual, beyond what a perturbed float64 run shows."""

from __future__ import annotations

from ..inputs.catalogue import MILDER, MIXED, VARIATIONS, Variation
from ..judging.bounds import U32, Truth

# Of extreme data: how many times what the perturbed run moves an output by counts, and how much of it at least. The power of two
# of x log2(e), which is honest, is off by several roundings of x, which are thousands.
MORE, GROSS = 4.0, 2.0**-9
STEADY = 2.0**-12  # of an output's size
# Of data of which some rows are far from the usual.
ROWS = 2.0**-15
# Where logarithms of decays add up to hundreds and thousands, exponentials of differences of their sums are off by as many u.
FAR_DECAYS = {"times 100": GROSS, "graded": GROSS, "steady": GROSS, "planted": ROWS, MIXED: ROWS, "pointers": ROWS}
FAR_DECAYS["negative parameters"] = GROSS
FAR_DECAYS |= {v.name: GROSS for v in (*VARIATIONS, *MILDER.values()) if v.rare}
# Where few entries are 100000 times as large as the others, a sum in order is less accurate beside them than the reference's sum.
ROUGH = {"rare large rows": 2.0**-17}
# Parameters with which the reference itself may lose most of its bits, and few entries may decide the error of the whole.
ENLARGED = {"large parameters", "parameters times 4", "parameters times 2", "negative parameters"} | {
    f"single parameters{name}" for name in ("", " turned", " times 4", " turned times 4")
}


def _least_error(name: str, extreme: bool, decays: bool) -> float:
    """How far an output may be off, of its size, for data of this name; 0 where only a perturbed run says it."""
    gross = GROSS if extreme else FAR_DECAYS.get(name, 0.0) if decays else 0.0
    return max(gross, ROUGH.get(name, 0.0))


def allow(truth: Truth, variation: Variation, decays: bool) -> None:
    """Widen a truth's bounds by what these data allow. `decays`: the model multiplies by exponentials step by step."""
    gross = _least_error(variation.name, variation.extreme, decays)
    truth.extreme |= variation.equal or gross > 0
    truth.steep = not variation.state and not gross
    _widen(truth, gross, variation.name in ENLARGED)


def allow_mixed(truths: list[Truth], decays: bool) -> None:
    """The same of a trial whose rows are those of several variations."""
    gross = _least_error(MIXED, extreme=False, decays=decays)
    for truth in truths:
        truth.extreme |= gross > 0
        _widen(truth, gross)


def _widen(truth: Truth, gross: float, more: bool = False) -> None:
    """`more`: a perturbed run's errors count for MORE times as much in any case, but where they are large already: milder data
    say more then."""
    noise = truth.noise
    if noise is None or not (gross or (more and noise.normwise <= STEADY)):
        return
    noise.normwise = max(MORE * noise.normwise, gross)
    noise.componentwise = max(MORE * noise.componentwise, gross / U32)
    truth.forget()
