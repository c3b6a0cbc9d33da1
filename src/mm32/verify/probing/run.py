"""All probes of one comparison: those that suit the model, then those with modules of their own, and what was left out."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..exchange.wire import bytes_of, leaves
from ..inputs.catalogue import MILDER, NOT_FINITE, VARIATIONS
from ..inputs.contents import WIDEST
from ..inputs.isolating import ISOLATING
from ..judging.judge import Judgement
from ..verdict import OWN_BITS
from . import calls_in_a_row, eval_mode, first_calls, later_parameters, rare_draws, strides
from .passed import PassedProbe
from .prober import LATE, NO_MEMORY, UNSET, Prober
from .product import ProductProbes
from .varied import DECIDES, VariedProbes

if TYPE_CHECKING:
    from ..compare import Comparison

FULL_BITS = 22.0  # if an arithmetic has more bits than this, it does not matter that no data show more
MOST_RANGES = 4  # the most ranges of lines that are named one by one
MOST_HELD = 256 << 20  # bytes of outputs up to which it does not matter that two are held at once
GROWING = {v.name for v in (*VARIATIONS, *MILDER.values()) if v.larger}
EQUAL = {"constant", "zero rows", "rare equal rows"}  # data whose entries, or rows, are equal, as those of padding are
FINE_PROBES = {v.name for v in ISOLATING}
Apart = Callable[["Comparison"], tuple[dict[str, Any], str] | None]  # a probe that has a module of its own


class Probing:
    """The probes of one comparison, after its trials found nothing."""

    def __init__(self, comparison: Comparison):
        self.comparison = comparison
        self.report = comparison.report
        self.prober: Prober = (VariedProbes if comparison.truth.contraction is None else ProductProbes)(comparison)

    @property
    def passed(self) -> list[PassedProbe]:
        """Data of probes that were passed, for timed windows."""
        return self.prober.passed.found

    def run(self) -> Judgement:
        """Run all probes of this model. The first that fails decides; the others are reported as well. Raises Stop and
        Failure."""
        begin = time.monotonic()
        worst = self.prober.run(begin)
        others: list[tuple[str, str, Apart]] = []
        if self.comparison.session.kernel is None and worst.same:
            others.append(("another first call", first_calls.ASKS, partial(first_calls.run, passed=self.passed)))
        if not self.report.problem["draws"]:  # which entry gets which number may depend on the order in memory
            others.append(("other strides", strides.ASKS, strides.run))
        if self.report.problem["draws"]:
            others.append(("rare draws", rare_draws.ASKS, rare_draws.run))
        if self.report.problem["draws"] or self.report.problem["changes"]:
            others.append(("in a row", calls_in_a_row.ASKS, calls_in_a_row.run))
        for name, asks, one in others:
            said = self._apart(name, asks, one, begin)
            if said and worst.same:
                worst = Judgement(False, f"probe {name!r}: {said}")
        self.prober.done()
        applied = [p for p in self.report.probes if p["status"] in ("same", "different")]
        self.report.left_out += self._not_run(applied)
        if self.prober.bits:
            self.report.left_out += self._bits(applied)
        tied = any(p["name"] == "equal neighbours" for p in applied)
        unlike = [said if tied else said.replace("in order", "strictly in order") for said in self._unlike()]
        self.report.left_out += unlike + self._labels() + self._never_run() + self._excused()
        if worst.same:
            self.report.left_out += self._overwritten()
        if worst.same and not self.prober.late(begin):
            with suppress(torch.OutOfMemoryError):
                self.report.left_out += later_parameters.left_out(self.comparison)
                self.report.left_out += eval_mode.left_out(self.comparison)
        return worst

    def _not_run(self, applied: list[dict[str, Any]]) -> list[str]:
        """Return in words what the probes that did not run would have shown."""
        said = []
        probes = self.report.probes
        if any(p.get("reason") == UNSET for p in probes):
            said.append("other parameters, since the candidate's are not the reference's")
        if late := [p for p in probes if p.get("reason") in (LATE, NO_MEMORY)]:
            said.append(f"{len(late)} of {len(probes)} probes")
        skipped = [p for p in probes if p not in applied and p not in late and p.get("reason") != UNSET]
        if len(skipped) > len(applied):
            why, count = Counter(str(p.get("reason")) for p in skipped).most_common(1)[0]
            often = f" ({why}: {count})" if count > 1 else ""
            said.append(f"{len(skipped)} of {len(probes)} probes, which do not suit its data{often}")
        decided = [p for p in skipped if p.get("reason") == DECIDES and p["name"] in EQUAL]
        if decided and len(skipped) <= len(applied):
            names = ", ".join(dict.fromkeys(str(p["name"]) for p in decided))
            said.append(f"data of which rounding decides what the reference answers ({names})")
        larger = [p for p in probes if p["name"] in GROWING]
        if larger and all(p.get("reason") == NOT_FINITE for p in larger) and len(skipped) <= len(applied):
            said.append("larger values, for which the reference's own answer is not finite")
        if any(p["name"] == "indefinite" and p.get("reason") == NOT_FINITE for p in probes):
            said.append("indefinite matrices, for which the reference's own answer is not finite")
        return said

    def _excused(self) -> list[str]:
        """Return in words which outputs were the same only because rounding may change most of them, in all comparisons."""
        found = [path for path, held in self.comparison.held.items() if not held]
        return [f"{', '.join(found)}, of which rounding may change half and more"] if found else []

    def _bits(self, applied: list[dict[str, Any]]) -> list[str]:
        """Report how many bits the candidate's arithmetic carries, where its data show that. Return in words what they do
        not show."""
        said = []
        bits = min(self.prober.bits)
        of_trials = self.comparison.likeness.own_bits
        self.report.precision = {"bits": round(bits, 1), "of": 24}
        if of_trials:
            self.report.precision["own"] = round(min(of_trials), 1)
        own = min(of_trials, default=24.0)
        if own < OWN_BITS <= bits:
            said.append(f"arithmetic of more than {max(0, math.floor(own))} bits on data like its own")
        fine = any(p["name"] in FINE_PROBES for p in applied)
        if bits < FULL_BITS and self.comparison.truth.contraction is None and not fine:
            said.append(f"arithmetic of more than {max(0, round(bits))} bits, which none of its data show")
        return said

    def _unlike(self) -> list[str]:
        """Return in words what no input has been, and what of the model was left as it is."""
        left = self.report.problem.get("not_given") or []
        said = [f"arguments of forward that get_inputs() does not give: {', '.join(map(str, left))}"] if left else []
        return (
            said + self.comparison.seen.unlike(self.comparison.inputs) + list(dict.fromkeys(self.comparison.unvaried))
        )

    def _never_run(self) -> list[str]:
        """Return in words which lines of the reference's own text no comparison has run: what the candidate does there was
        not seen."""
        ranges = self.comparison.reference.ask("never_run").header["lines"]
        said = [str(first) if first == last else f"{first} to {last}" for first, last in ranges[:MOST_RANGES]]
        if not said:
            return []
        more = f" and {len(ranges) - MOST_RANGES} more places" if len(ranges) > MOST_RANGES else ""
        lines = "line" if len(ranges) == 1 and said[0].isdecimal() else "lines"
        return [f"{lines} {', '.join(said)}{more} of the reference, which never ran"]

    def _overwritten(self) -> list[str]:
        """Return in words that the candidate's next call overwrites outputs that are kept, if it does and the reference's
        does not: a caller who knows no better keeps them."""
        comparison = self.comparison
        if bytes_of(comparison.right) > MOST_HELD:
            return []
        comparison.inputs = comparison.own_inputs(comparison.session.seed)
        comparison.give(comparison.inputs)
        for side in (comparison.candidate, comparison.reference):
            found = bool(side.ask("overwrites", seed=comparison.session.seed).header.get("overwrites"))
            if found != (side is comparison.candidate):
                return []
        return ["outputs that are kept over the next call, which overwrites them"]

    def _labels(self) -> list[str]:
        """Return in words the labels that a loss leaves out. No candidate is given them, because one that looks them up may
        end its process."""
        whole = any(isinstance(t, Tensor) and t.dtype in WIDEST for _, t in leaves(self.comparison.inputs))
        return [
            f"labels of {label}, which its loss leaves out" for label in self.report.problem.get("ignored", ()) if whole
        ]

    def _apart(self, name: str, asks: str, run: Apart, begin: float) -> str:
        """Run a probe that has a module of its own. Return what is wrong, empty if nothing is."""
        self.prober.next(name)
        record: dict[str, Any] = {"name": name, "asks": asks}
        self.report.probes.append(record)
        if self.prober.late(begin):
            record |= {"status": "skipped", "reason": LATE}
            return ""
        found: tuple[dict[str, Any], str] | None = {}, ""
        done = False
        with suppress(torch.OutOfMemoryError):
            found = run(self.comparison)
            done = True
        if not done:
            self.prober.without_memory(record)
            self.comparison.own_inputs(self.comparison.session.seed)
            return ""
        if found is None:
            self.report.probes.remove(record)
            return ""
        record |= found[0]
        return found[1]
