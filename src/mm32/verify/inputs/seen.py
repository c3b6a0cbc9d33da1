"""What the inputs of all comparisons have in common: a candidate was seen with nothing else."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..exchange.wire import leaves
from .contents import (
    FEW_VALUES,
    LEAST,
    NAMED,
    ORDERED,
    WIDEST,
    all_same,
    few_values,
    in_words,
    is_complex_data,
    is_data,
    listed,
    structure,
)
from .integers import are_distinct_by_no_chance
from .regrouped import BLOCK

BYTES = (torch.uint8, torch.int8)  # types whose data usually take up the whole range
MOST_STEADY = 1 << 24  # the most entries of an input for which it is noted whether it is always the same


class Seen:
    """What the inputs of one comparison after another have had in common."""

    def __init__(self) -> None:
        self.steady: dict[int, Tensor] = {}  # inputs that are no data (masks, indices), and were the same in all
        self.numbers: dict[int, list[str]] = {}  # inputs that are a number or so, and had few values in all
        self.values: dict[int, set[float]] = {}  # the values that inputs of few values had
        # The first one of matrices with a structure, and which of their entries were the same in all.
        self.fixed: dict[int, tuple[Tensor, Tensor]] = {}
        # The range of inputs of whole numbers that probes leave alone.
        self.whole: dict[int, tuple[float, float]] = {}
        self.empty = False  # whether a list among the inputs was empty in all
        self.arranged: dict[int, list[str]] = {}  # how rows of integers and booleans were arranged in all

    def note(self, inputs: Any, first: bool = False) -> None:
        """Note what the masks and indices of this comparison's inputs have in common with all before; for the `first` one,
        note all."""
        found = [leaf for _, leaf in leaves(inputs)]
        self.empty = (first or self.empty) and _holds_an_empty_one(inputs)
        if first:
            self.numbers = {i: [said] for i, t in enumerate(found) if (said := _number(t))}
            for i, t in enumerate(found):
                if not isinstance(t, Tensor) or not LEAST <= t.numel() <= MOST_STEADY:
                    continue
                if t.is_floating_point() and structure(t) == "in order" and few_values(t):
                    self.values[i] = set()  # a mask that selects the first entries, for example
                if t.dtype in WIDEST and len(few_values(t) or range(NAMED + 1)) <= NAMED:
                    self.values[i] = set()  # kinds of boundaries, say
                if t.dtype in BYTES:
                    self.whole[i] = (math.inf, -math.inf)
                if not _may_vary(t):
                    self.steady[i] = t.clone()
                    if t.is_floating_point():
                        self.values[i] = set()
                        self.whole[i] = (math.inf, -math.inf)
            self.arranged = {i: hows for i, t in enumerate(found) if (hows := _arrangement(t))}
        for i, (low, high) in list(self.whole.items()):
            t = found[i] if i < len(found) else None
            if isinstance(t, Tensor) and t.numel() and bool((t == t.round()).all()):
                self.whole[i] = min(low, float(t.min())), max(high, float(t.max()))
            else:
                del self.whole[i]
        for i in list(self.values):
            seen = few_values(found[i]) if i < len(found) and isinstance(found[i], Tensor) else None
            most = FEW_VALUES if i < len(found) and found[i].is_floating_point() else NAMED
            if seen is None or len(self.values[i] | seen) > most:
                del self.values[i]
            else:
                self.values[i] |= seen
        changed = [i for i, t in self.steady.items() if i >= len(found) or not torch.equal(t, found[i].to(t.device))]
        for i in changed:
            del self.steady[i]
        for i, numbers in list(self.numbers.items()):
            said = _number(found[i]) if i < len(found) else ""
            numbers += [said] if said not in numbers else []
            if not said or len(numbers) > (1 if isinstance(found[i], float) else NAMED):  # a fraction may be any number
                del self.numbers[i]
        self._note_fixed(found, first)
        for i, hows in list(self.arranged.items()):
            t = found[i] if i < len(found) else None
            if isinstance(t, Tensor) and t.dtype == torch.bool and t.numel() and all_same(t):
                continue  # masks that are all true or all false show no arrangement, and contradict none
            now = _arrangement(t)
            if kept := [how for how in hows if how in now]:
                self.arranged[i] = kept
            else:
                del self.arranged[i]

    def _note_fixed(self, found: list[Any], first: bool) -> None:
        if first:
            matrices = {i: t for i, t in enumerate(found) if isinstance(t, Tensor) and _is_arranged_matrix(t)}
            self.fixed = {
                i: (one.clone(), torch.ones_like(one, dtype=torch.bool))
                for i, t in matrices.items()
                for one in [t.detach().reshape(-1, *t.shape[-2:])[0]]
            }
        for i, (one, same) in self.fixed.items():
            t = found[i] if i < len(found) else None
            if isinstance(t, Tensor) and t.shape[-2:] == one.shape:
                self.fixed[i] = one, same & (t.detach().reshape(-1, *one.shape) == one).all(0)

    def _finer(self, i: int, of: str) -> str:
        """Return in words what matrices of one structure have had in common beyond it: those that are diagonal are
        symmetric, for example."""
        if i not in self.fixed or of not in ("symmetric", "triangular", "orthogonal"):
            return of
        one, same = self.fixed[i]
        if of == "triangular":  # the zeros of the other half are no news
            half = torch.ones_like(same)
            same = same & (half.triu() if bool(one.triu(1).any()) else half.tril())
        count = int(same.sum())
        if count == one.numel() and not bool(one.any()):
            return "all zeros"
        return f"{of} with {count} of {same.numel()} entries always the same" if 0 < count < one.numel() else of

    def forget(self) -> None:
        """Free the memory of the inputs that were the same in all. Which inputs these were is kept."""
        self.steady = dict.fromkeys(self.steady, torch.empty(0))
        self.fixed = {}

    def unlike(self, inputs: Any) -> list[str]:
        """Return in words what no input has been in all that was compared. `inputs`: those of the last comparison."""
        found = [leaf for _, leaf in leaves(inputs)]
        said = [
            f"input {i} other than {self._finer(i, of)}"
            for i, leaf in enumerate(found)
            if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex()) and (of := structure(leaf))
        ]
        for i, t in self.steady.items():
            kind = "true" if t.dtype == torch.bool else "not 0"
            what = "booleans" if t.dtype == torch.bool else "few values" if t.is_floating_point() else "integers"
            share = float((t != 0).double().mean())
            said.append(f"input {i} other than the same {what} each time ({share:.0%} {kind})")
        said += [
            f"input {i} other than {listed(sorted(numbers, key=lambda said: (len(said), said)))}"
            for i, numbers in self.numbers.items()
        ]
        said += ["lists among the inputs that are not empty"] if self.empty else []
        said += [f"input {i} other than {' and '.join(h)}" for i, h in self.arranged.items() if i not in self.steady]
        for i, (low, high) in self.whole.items():
            of_all = i < len(found) and isinstance(found[i], Tensor) and _has_whole_range(found[i], low, high)
            if i not in self.steady and i not in self.values and math.isfinite(low + high) and not of_all:
                said.append(f"input {i} other than whole numbers from {low:g} to {high:g}")
        for i, seen in self.values.items():
            if i not in self.steady and seen:
                said.append(f"input {i} other than {in_words(seen)}")
        return said


def _may_vary(t: Tensor) -> bool:
    """Whether an input is one that probes change, or one whose structure is reported."""
    return is_data(t) or is_complex_data(t) or ((t.is_floating_point() or t.is_complex()) and bool(structure(t)))


def _has_whole_range(t: Tensor, low: float, high: float) -> bool:
    """Whether `low` and `high` are the ends of what the tensor's type holds."""
    return t.dtype in BYTES and (low, high) == (torch.iinfo(t.dtype).min, torch.iinfo(t.dtype).max)


def _number(t: Any) -> str:
    """Describe a leaf of the inputs that is None, a text, a number or a few integers, which no probe changes; else return an
    empty text."""
    if isinstance(t, Tensor):
        few = 0 < t.numel() < LEAST and not t.is_floating_point() and not t.is_complex()
        return str(t.tolist()) if few else ""
    return repr(t) if t is None or isinstance(t, (int, float, str)) else ""


def _holds_an_empty_one(inputs: Any) -> bool:
    """Whether there is an empty list, tuple or dict among these inputs, at any depth."""
    items = inputs.values() if isinstance(inputs, dict) else inputs
    return any(isinstance(item, (list, tuple, dict)) and (not item or _holds_an_empty_one(item)) for item in items)


def _is_arranged_matrix(t: Tensor) -> bool:
    """Whether a tensor holds square matrices of floats whose entries belong together."""
    square = t.is_floating_point() and t.dim() > 1 and t.shape[-1] == t.shape[-2] and t.numel() <= MOST_STEADY
    return square and bool(structure(t))


def _arrangement(t: Any) -> list[str]:
    """Return in words how the rows of a tensor of integers or booleans are arranged, where that is no chance. Probes keep it."""
    if not isinstance(t, Tensor) or t.is_floating_point() or t.is_complex() or not t.dim():
        return []
    width = t.shape[-1]
    if width < ORDERED or not t.numel() or t.numel() > MOST_STEADY:
        return []
    rows = t.reshape(-1, width)
    if len(rows) > 1 and bool((rows == rows[0]).all() & (rows[0] != rows[0, 0]).any()):
        return ["the same in every row"]
    if t.dtype == torch.bool:
        blocks = (rows.diff(dim=-1).sum(-1) <= BLOCK).all() & rows.any() & ~rows.all()
        return ["one block of booleans in each row"] if bool(blocks) else []
    rows = rows.to(torch.int64)
    steps = rows.diff(dim=-1)
    found = []
    if bool(((steps >= 0).all() | (steps <= 0).all()) & steps.any()):
        found.append("sorted")
    if are_distinct_by_no_chance([rows]):
        found.append("without repetition")
    return found
