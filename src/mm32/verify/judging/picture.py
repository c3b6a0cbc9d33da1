"""Where an output is off and by how much, small enough to keep for the HTML report, for outputs of any size.

Each tensor gets a map of at most 128 x 128 cells (1 x 512 for a vector), each with its worst entry, and the distribution of the
errors of the candidate and of the reference, in bins of powers of two. An error is given as its ratio to what the rule (judge.py)
allows there, so 1 is the bound. Only the trusted side's tensors and numbers are used; from the candidate come only the entries of
its output.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..exchange.wire import leaves
from .bounds import Truth, rms, widened
from .judge import Judgement, as_tensors
from .odd_values import decided
from .pieces import size_of_pieces

SIDE = 128  # the most cells of a map in each direction
STRIP = 512  # the most cells of the map of a vector
OUTPUTS = 8  # the most tensors of one output that are drawn
WHOLE = 1 << 20  # up to so many entries, all the reference's errors are counted; of more, those of one part in eight
# A cell's code is 0 for no error, BOUND + n for a worst ratio of at most 2^(n / STEPS), or DIFFERS.
STEPS = 4
BOUND = 128
DIFFERS = 255  # NaN or Inf in another place than the reference's, or a value that differs where all must be equal
# Exponents of the histogram's first and last bin; bin e holds the ratios above 2^(e-1), up to 2^e.
LOWEST, HIGHEST = -32, 32


def paint(got: Any, truths: list[Truth], judgement: Judgement, of: str) -> dict[str, Any]:
    """Draw the pictures of an output that `judge` has judged. `of` names the output: "trial 1".

    Returns "of", "same", "outputs" and "left_out", the number of tensors that are not drawn. Each of "outputs" has "path",
    "shape", "dtype", and either "why_not" or what `_drawn` returns. "outputs" is empty where the output is built differently
    from the reference's.
    """
    made: dict[str, Any] = {"of": of, "same": judgement.same, "outputs": [], "left_out": 0}
    if [path for path, _ in leaves(got)] != [truth.path for truth in truths]:
        return made
    found = [leaf for _, leaf in leaves(got)]
    numbers = [judgement.leaf, *(n for n in range(len(truths)) if n != judgement.leaf)][:OUTPUTS]
    for number in sorted(numbers):
        truth = truths[number]
        made["outputs"].append(_output(found[number], truth, judgement if number == judgement.leaf else None))
    made["left_out"] = len(truths) - len(numbers)
    return made


def _output(got: Any, truth: Truth, judgement: Judgement | None) -> dict[str, Any]:
    reference = truth.reference
    if type(reference) is float and type(got) in (int, float):
        got, truth = as_tensors(got, truth)
        reference = truth.reference
    what = {
        "path": truth.path,
        "shape": list(reference.shape) if isinstance(reference, Tensor) else [],
        "dtype": str(getattr(reference, "dtype", type(reference).__name__)).removeprefix("torch."),
    }
    if not isinstance(reference, Tensor) or not isinstance(got, Tensor):
        return {**what, "why_not": "it is no tensor"}
    if got.shape != reference.shape or got.dtype != reference.dtype:
        return {**what, "why_not": "its shape or type is not the reference's"}
    if not got.numel():
        return {**what, "why_not": "it is empty"}
    return {**what, **_drawn(got, truth, judgement)}


def _drawn(got: Tensor, truth: Truth, judgement: Judgement | None) -> dict[str, Any]:
    """Draw the picture of one tensor.

    Returns:
    - "entries", "wrong" (beyond the bound) and "odd" (NaN or Inf in the wrong place, or unequal where all must be equal): counts;
    - "truth": what errors are measured from, "float64" or "reference";
    - "against": which bound is 1, "componentwise", "normwise" (where only the whole is beyond its bound), "relative" or
      "equality"; "bound": the bound's value;
    - "split": how many of the first axes are the map's rows; "cell": rows and columns of a cell; "cells": rows and columns of
      the map; "map": the cells' codes, row by row, in base64; "largest": the worst ratio;
    - "histogram": "lowest", the exponent of the first bin, and for "candidate" and "reference" the counts of "bins" and of
      entries that are "exact". "reference" is null where it is the truth itself, and counts a sample of many entries.
    """
    measure = _Measure(truth, judgement)
    if not math.isfinite(measure.scale):
        return {"why_not": "its numbers are too large to square"}
    mine, theirs = (t.detach().reshape(-1) for t in (got, truth.reference))
    rows, columns, split = view(list(got.shape))
    high, wide = cell(rows, columns)
    down, across = math.ceil(rows / high), math.ceil(columns / wide)
    worst = torch.zeros(down, across, dtype=torch.float64)
    counts = {"candidate": torch.zeros(257, dtype=torch.int64), "reference": torch.zeros(257, dtype=torch.int64)}
    parts = blocks(rows, columns, high, wide, size_of_pieces(got))
    for number, (top, bottom, left, right) in enumerate(parts):
        ratio = measure.ratio(mine, top, bottom, left, right, columns)
        counts["candidate"] += _bins(ratio)
        if measure.both and (got.numel() <= WHOLE or number % 8 == 0):
            counts["reference"] += _bins(measure.ratio(theirs, top, bottom, left, right, columns))
        small = _pooled(ratio.reshape(bottom - top, right - left), high, wide).cpu()
        at = worst[top // high : top // high + small.shape[0], left // wide : left // wide + small.shape[1]]
        torch.maximum(at, small, out=at)
    seen, odd = _histogram(counts["candidate"])
    finite = worst[worst.isfinite()]
    largest = math.inf if bool(worst.isinf().any()) else float(finite.max()) if finite.numel() else 0.0
    return {
        "entries": got.numel(),
        "wrong": int(counts["candidate"][128:].sum()),
        "odd": odd,
        "truth": "reference" if measure.exact is truth.reference else "float64",
        "against": measure.against,
        "bound": measure.bound,
        "split": split,
        "cell": [high, wide],
        "cells": [down, across],
        "map": base64.b64encode(codes(worst).numpy().tobytes()).decode(),
        "largest": largest,
        "histogram": {
            "lowest": LOWEST,
            "candidate": seen,
            "reference": _histogram(counts["reference"])[0] if measure.both else None,
        },
    }


def view(shape: list[int]) -> tuple[int, int, int]:
    """Return a shape as a matrix's: rows, columns, and how many of the first axes are its rows.

    The matrix is as square as possible; a vector is one row.
    """
    if sum(size > 1 for size in shape) < 2:
        return 1, math.prod(shape), 0
    splits = range(1, len(shape))
    sizes = [(math.prod(shape[:k]), math.prod(shape[k:])) for k in splits]
    best = min(range(len(sizes)), key=lambda i: (abs(math.log(sizes[i][0] / sizes[i][1])), -i))
    return *sizes[best], splits[best]


def cell(rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of one cell of the map."""
    if rows == 1:
        return 1, math.ceil(columns / STRIP)
    return math.ceil(rows / SIDE), math.ceil(columns / SIDE)


def blocks(rows: int, columns: int, high: int, wide: int, most: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield parts of a matrix, of about `most` entries each so that they stay in a cache: top, bottom, left, right.

    Every part begins at the edge of a column of cells; a part of more than one row of cells begins at the edge of a row of cells.
    """
    step = columns if columns <= most else max(wide, most // wide * wide)
    many = max(1, most // step)
    many = many // high * high if many >= high else many
    top = 0
    while top < rows:
        bottom = min(rows, top + many, rows if many >= high else (top // high + 1) * high)
        for left in range(0, columns, step):
            yield top, bottom, left, min(columns, left + step)
        top = bottom


def _pooled(t: Tensor, high: int, wide: int) -> Tensor:
    """Return the maximum of each cell of a matrix; NaN if one of its entries is. The last cells may be smaller."""
    for axis, size in ((0, high), (1, wide)):
        whole = t.shape[axis] // size
        if size > 1:
            head, rest = t.split([whole * size, t.shape[axis] - whole * size], dim=axis)
            head = head.unflatten(axis, (whole, size)).amax(dim=axis + 1) if whole else head.narrow(axis, 0, 0)
            t = torch.cat([head, rest.amax(dim=axis, keepdim=True)], dim=axis) if rest.shape[axis] else head
    return t


def codes(worst: Tensor) -> Tensor:
    """Return ratios as bytes; see BOUND. A ratio above 1, by however little, has a code above BOUND."""
    n = torch.ceil(STEPS * torch.log2(worst)).nan_to_num(nan=0.0).clamp(1 - BOUND, DIFFERS - 2 - BOUND)
    made = torch.where(worst > 0, n + BOUND, torch.zeros_like(n))
    return torch.where(worst.isnan(), torch.full_like(n, DIFFERS), made).to(torch.uint8)


def _bins(ratio: Tensor) -> Tensor:
    """Count ratios by the exponent in their bits.

    Place 0 counts the ratios that are 0, place 1 + e + 126 those above 2^(e-1) and up to 2^e, place 255 infinity, and 256 NaN.
    """
    bits = ratio.reshape(-1).to(torch.float32).view(torch.int32)
    return torch.bincount(((bits - 1) >> 23) + 1, minlength=257).cpu()


def _histogram(counts: Tensor) -> tuple[dict[str, Any], int]:
    """Return from the counts of `_bins` the bins LOWEST to HIGHEST, whose ends take in all beyond, and how many are NaN."""
    found = counts.tolist()
    first, last = LOWEST + 127, HIGHEST + 127
    bins = [sum(found[1 : first + 1]), *found[first + 1 : last], sum(found[last:256])]
    return {"exact": found[0], "bins": bins}, found[256]


class _Measure:
    """The ratio of an entry's error to what the rule allows there."""

    def __init__(self, truth: Truth, judgement: Judgement | None):
        if truth.rows is not None:
            truth = truth.unsliced()
        self.exact = truth.reference if truth.exact is None or not isinstance(truth.exact, Tensor) else truth.exact
        self.gauge, self.truth = truth.gauge, truth
        self.scale, self.bound = 0.0, 0.0
        if truth.u == 0.0 or truth.bitwise:
            self.against, self.exact = "equality", truth.reference
        elif truth.relative is not None:
            self.against, self.exact, self.bound = "relative", truth.reference, truth.relative
        else:
            self.against, self.bound = "componentwise", truth.own()[1].componentwise
            if self.gauge is None:
                self.scale = truth.scale()
            if judgement is not None and _only_the_whole(judgement):
                self.against, self.bound, self.scale = "normwise", judgement.bounds.normwise, rms(self.exact)
        self.both = self.exact is not truth.reference
        self.flat = [None if t is None else t.detach().reshape(-1) for t in (truth.reference, self.exact, self.gauge)]

    def ratio(self, flat: Tensor, top: int, bottom: int, left: int, right: int, columns: int) -> Tensor:
        """Return the ratios of a part of the output `flat`: NaN where it is odd, 0 where it agrees with NaN or Inf."""

        def part(flat: Tensor) -> Tensor:
            if right - left == columns:
                return flat[top * columns : bottom * columns]
            return flat.view(-1, columns)[top:bottom, left:right].reshape(-1)

        c = part(flat)
        r, x, g = (None if t is None else part(t) for t in self.flat)
        assert r is not None
        assert x is not None
        if self.against == "equality":
            same = (c == r) | (c.isnan() & r.isnan())
            return torch.where(same, 0.0, math.nan).to(torch.float64)
        wide = widened(x)
        off = (widened(c) - wide).abs_() if not wide.is_complex() else (widened(c) - wide).abs()
        ratio = off.div(self._allowed(wide.abs(), g))
        if math.isfinite(float(ratio.sum())):
            return ratio
        fine = c.isfinite() & r.isfinite() & x.isfinite()
        ratio = torch.where(fine & (off != 0), ratio, 0.0)  # 0 / 0: a sum of zeros, and exact
        return torch.where(_odd(c, r, x, self.truth), math.nan, ratio)

    def _allowed(self, size: Tensor, gauge: Tensor | None) -> Tensor | float:
        if self.against == "normwise":
            return self.bound * self.scale
        if self.against == "relative":
            return size.clamp_min_(self.truth.floor).mul_(self.bound)
        unit = gauge if gauge is not None else size.add_(self.scale)
        return unit * (self.bound * self.truth.u)


def _only_the_whole(judgement: Judgement) -> bool:
    errors, bounds = judgement.errors, judgement.bounds
    return (
        judgement.measured
        and not judgement.same
        and errors.componentwise <= bounds.componentwise
        and errors.normwise > bounds.normwise
    )


def _odd(c: Tensor, r: Tensor, x: Tensor, truth: Truth) -> Tensor:
    """Return where NaN and Inf of `c` are not as the reference's, by the judge's rules."""
    if c.is_complex():
        return c.isfinite() != r.isfinite()
    part = Truth(truth.path, r, x, either=truth.either)
    c, r = decided(c, part)
    return (c.isnan() != r.isnan()) | ((c == math.inf) != (r == math.inf)) | ((c == -math.inf) != (r == -math.inf))
