"""What is wrong with an output, for a person: where, how much, and what the wrong entries have in common."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..exchange.wire import leaves
from .bounds import Truth
from .judge import Judgement

MIN_WRONG_FOR_A_PATTERN = 8  # from so many wrong entries on, what they have in common is not chance
COMMON_SHARE = 0.1  # operands of few bits are named as the cause only if at least this part of all entries is wrong
LEAST_ROUNDED = 2.0**-15  # operands of few bits are named as the cause only if the median relative error is above this
UNEVEN = 64  # rounded operands make no error larger than so many times the median error of the wrong entries
# About so many entries are looked at in one step; the first step that finds a wrong one is the last.
ENTRIES_AT_ONCE = 1 << 26


def explain(got: Any, truths: list[Truth], judgement: Judgement, before: Any = None) -> dict[str, Any]:
    """Describe the wrong entries of the tensor that `judgement` is about; empty where shapes, types or structures differ.

    `before`: the reference's output for the inputs of the call before. Returns "path", "wrong" and "entries" (counts), "first"
    and "worst" (each with "index", "got", "expected") and "pattern", a list of short sentences.
    """
    if [path for path, _ in leaves(got)] != [truth.path for truth in truths] or judgement.leaf >= len(truths):
        return {}
    found = [leaf for _, leaf in leaves(got)]
    c, truth = found[judgement.leaf], truths[judgement.leaf]
    r = truth.reference
    if (
        not isinstance(c, Tensor)
        or not isinstance(r, Tensor)
        or c.shape != r.shape
        or c.dtype != r.dtype
        or not c.numel()
    ):
        return {}
    of_float64 = isinstance(truth.exact, Tensor) and truth.rows is None and truth.u > 0 and not truth.bitwise
    x = truth.exact if of_float64 else r
    old = [leaf for _, leaf in leaves(before)] if before is not None else []
    stale = old[judgement.leaf] if len(old) == len(found) else None
    if c.is_complex():
        c, x, r, stale = c.abs(), x.abs(), r.abs(), None
    rows = c.shape[0] if c.dim() else 1
    step = max(1, ENTRIES_AT_ONCE * rows // c.numel())
    for begin in range(0, rows, step):
        part = [t if t is None or step >= rows else t[begin : begin + step] for t in (c, x, r, truth.gauge, stale)]
        found_here = _explain(part, truth, judgement, begin)
        if found_here:
            return found_here
    return {}


def _explain(part: list[Any], truth: Truth, judgement: Judgement, begin: int) -> dict[str, Any]:
    """Do as `explain` for the rows from `begin` on of a tensor that is too large to be looked at as a whole."""
    c, x, r = (t.double() for t in part[:3])
    gauge, stale = part[3:]
    wrong = _wrong(c, x, r, gauge, truth, judgement)
    count = int(wrong.sum())
    if not count:
        return {}
    x = torch.where(r.isfinite() & ~x.isfinite(), r, x)  # the reference's number is what was expected there
    error = torch.where(wrong, (c - x).abs(), torch.zeros_like(c)).nan_to_num(nan=math.inf)
    first, worst = int(wrong.reshape(-1).to(torch.uint8).argmax()), int(error.reshape(-1).argmax())

    def entry(at: int) -> dict[str, Any]:
        index = [int(i) for i in np.unravel_index(at, tuple(c.shape))] if c.dim() else []
        index[:1] = [begin + i for i in index[:1]]
        return {"index": index, "got": float(c.reshape(-1)[at]), "expected": float(x.reshape(-1)[at])}

    return {
        "path": truth.path,
        "wrong": count,
        "entries": c.numel(),
        "first": entry(first),
        "worst": entry(worst),
        "pattern": _pattern(c, x, wrong, stale),
    }


def _wrong(c: Tensor, x: Tensor, r: Tensor, gauge: Tensor | None, truth: Truth, judgement: Judgement) -> Tensor:
    """Return a mask of the entries beyond their own bound; if only the whole is beyond its bound, of those beyond the whole's."""
    odd = (c.isnan() != r.isnan()) | (c.isinf() != r.isinf()) | (c.isinf() & r.isinf() & (c != r))
    odd &= ~(r.isfinite() & ((c.isnan() & x.isnan()) | (c.isinf() & (c == x))))  # right, as in the float64 run
    if truth.u == 0.0 or truth.bitwise:
        return (c != r) & ~(c.isnan() & r.isnan())
    size = x.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs()
    rms = float(size.square().mean().sqrt())
    off = (c - x).abs().nan_to_num(nan=0.0, posinf=0.0)
    if truth.relative is not None:
        return odd | (off > truth.relative * size.clamp_min(truth.floor))
    unit = gauge.reshape(x.shape) if gauge is not None else size + rms
    beyond = off > judgement.bounds.componentwise * truth.u * unit
    if not bool((beyond | odd).any()):
        beyond = off > judgement.bounds.normwise * rms
    return odd | beyond


def _pattern(c: Tensor, x: Tensor, wrong: Tensor, stale: Tensor | None) -> list[str]:
    found = []
    share = float(wrong.double().mean())
    got, expected = c[wrong], x[wrong]
    if bool(got.isnan().all()):
        of = "finite" if bool(expected.isfinite().all()) else "infinite" if bool(expected.isinf().all()) else ""
        found.append(f"NaN where the reference is {of}" if of else "NaN")
    elif bool(got.isinf().all()):
        lost = bool(expected.isnan().all())
        said = "is NaN: a comparison that is false of a NaN" if lost else "is not: an overflow, in exp or in fp16"
        found.append(f"infinite where the reference {said}")
    elif not bool(got.any()):
        found.append("all of the wrong entries are zero")
    elif stale is not None and stale.shape == c.shape and bool((got == stale.double()[wrong]).all()):
        found.append("they are the answer for the inputs of the call before")
    elif bool(got.isnan().any()):
        found.append(f"{float(got.isnan().double().mean()):.0%} of the wrong entries are NaN")
    elif float(got.isinf().double().mean()) > 0.5:
        found.append(f"{float(got.isinf().double().mean()):.0%} of the wrong entries are infinite")
    else:
        found += _related(c, x, got, expected, share)
    odd = bool((got.isfinite() & expected.isfinite()).any())
    found += _places(wrong, share, tiles=odd)
    return found


def _related(c: Tensor, x: Tensor, got: Tensor, expected: Tensor, share: float) -> list[str]:
    """Return what turns the expected entries into those that were got, in short sentences."""
    fine = got.isfinite() & expected.isfinite()
    got, expected = got[fine], expected[fine]
    if got.numel() < MIN_WRONG_FOR_A_PATTERN:
        return []
    scale = float(expected.abs().mean()) or 1.0

    def near(a: Tensor, b: Tensor) -> bool:
        return bool(float((a - b).abs().mean()) <= 1e-3 * scale)

    if near(got, -expected) and bool(expected.any()):
        return ["the sign is wrong"]
    if c.dim() >= 2 and c.shape[-1] == c.shape[-2] and share > 0.3 and near(c.transpose(-1, -2).flatten(), x.flatten()):
        return ["the result is transposed"]
    if bool((got == got[0]).all()) and not near(got, expected):
        return [f"they are all {float(got[0]):.6g}"]
    nonzero = expected.abs() > 1e-6 * scale
    if int(nonzero.sum()) > 1:
        ratio = got[nonzero] / expected[nonzero]
        middle = float(ratio.median())
        if middle == 0:
            return ["most of the wrong entries are zero"]
        if abs(middle - 1) > 1e-4 and float((ratio - middle).abs().median()) <= 1e-3 * abs(middle):
            return [f"they are {middle:.5g} times what they should be"]
    apart = got - expected
    middle = float(apart.median())
    if abs(middle) > 1e-5 * scale and float((apart - middle).abs().median()) <= 1e-3 * abs(middle):
        return [f"they are off by a constant, {middle:.5g}"]
    if not bool((got < 0).any()) and bool((expected < 0).any()) and near(got, expected.clamp_min(0)):
        return ["negative values are missing"]
    if bool((expected >= 0).all()) and bool((got < 0).any()) and near(got.clamp_min(0), expected):
        return ["values below zero that the reference does not have: an activation is missing"]
    relative = float(((got - expected).abs() / expected.abs().clamp_min(1e-3 * scale)).median())
    if float(apart.abs().max()) > UNEVEN * float(apart.abs().median()):
        return []  # rounding operands makes no errors that are so uneven
    # Operands of 8 bits make errors of 2^-8.8; of 11 bits, 2^-11.8, or 2^-10.3 if truncated instead of rounded. (This is for
    # random signs; errors are smaller in long sums of one sign.)
    if share >= COMMON_SHARE and LEAST_ROUNDED < relative < 2.0**-7:
        name = "bfloat16" if relative > 2.0**-10 else "TF32 or fp16 (bfloat16, in long sums of one sign)"
        return [f"errors of about 2^{math.log2(relative):.0f}, as operands in {name} make, or small terms left out"]
    return []


def _places(wrong: Tensor, share: float, tiles: bool) -> list[str]:
    """Return where the wrong entries lie, if that is special.

    `tiles`: whether tiles are named as a cause; NaN and Inf lie where the data had them, so they say nothing about tiles.
    """
    found = []
    if share > 0.999:
        return ["every entry is wrong"]
    for axis in range(wrong.dim()):
        size = wrong.shape[axis]
        if size < 2:
            continue
        others = [a for a in range(wrong.dim()) if a != axis]
        hit = (wrong.any(dim=tuple(others)) if others else wrong).nonzero().flatten()
        low, high = int(hit.min()), int(hit.max())
        if low == high:
            found.append(f"all at index {low} of axis {axis}")
        elif high == size - 1 and low > 0 and (high - low + 1) <= size / 2:
            tail = ": the tail, or the last tile" if tiles else ""
            found.append(f"all in the last {size - low} of {size} of axis {axis}{tail}")
        elif high - low + 1 <= size / 2:
            found.append(f"all from {low} to {high} of axis {axis}, of {size}")
    return found


def sentence(found: dict[str, Any]) -> str:
    """Return the explanation in one line."""
    if not found:
        return ""
    worst, first = found["worst"], found["first"]
    share = f"{found['wrong']} of {found['entries']} entries wrong"
    parts = [share + (f" ({'; '.join(found['pattern'])})" if found["pattern"] else "")]
    parts += [
        f"{name} at {tuple(one['index'])}: {one['got']:.7g} instead of {one['expected']:.7g}"
        for name, one in (("first", first), ("worst", worst))
    ]
    return "; ".join(parts[:2] if first == worst else parts)
