"""Could this check have failed? Wrong outputs, made from the right one, that the judge must tell from it.

Runs with every verification, with the judge and the bounds that judge the candidate. A check that passes zeros (a sum
of NaN-poisoned comparisons, a tolerance looser than the answer) proves nothing, and the tool then gives no verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .protocol import leaves
from .verdict import Judgement, Truth, judge


@dataclass
class Case:
    """One wrong output, and whether the judge told it from the right one."""

    name: str
    caught: bool
    how: str


def substitute(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """`tree` with every tensor and every float changed."""
    if isinstance(tree, dict):
        return {key: substitute(item, change) for key, item in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(substitute(item, change) for item in tree)
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, float):
        return change(torch.tensor([tree])).item()
    return tree


def first_tensor(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """`tree` with its first tensor that has entries changed, and the others as they are."""
    done: list[bool] = []

    def once(t: Tensor) -> Tensor:
        if done or t.numel() == 0:
            return t
        done.append(True)
        return change(t)

    return substitute(tree, once)


def _one_wrong(t: Tensor) -> Tensor:
    """One entry, the largest, off by one per cent (an integer: by one; a truth value: turned over)."""
    out = t.clone().contiguous()
    flat = out.reshape(-1)
    if t.dtype == torch.bool:
        flat[0] = ~flat[0]
        return out
    sizes = torch.nan_to_num(flat.abs().double(), nan=0.0, posinf=0.0)
    at = int(sizes.argmax())
    if t.is_floating_point() or t.is_complex():
        flat[at] = flat[at] * 1.01 if float(sizes[at]) > 0 else 1.0
    else:
        flat[at] += 1
    return out


def _one_nan(t: Tensor) -> Tensor:
    out = t.clone().contiguous()
    flat = out.reshape(-1)
    flat[int(torch.isfinite(flat).to(torch.uint8).argmax())] = float("nan")
    return out


def _constant(t: Tensor) -> Tensor:
    if t.is_complex() or t.dtype == torch.bool:
        return torch.ones_like(t)
    finite = t[torch.isfinite(t)].double()
    return torch.full_like(t, finite.mean().item() if finite.numel() else 1.0)


def _rounded(t: Tensor) -> Tensor:
    if not t.is_floating_point() or t.dtype == torch.bfloat16:
        return _one_wrong(t)
    return t.to(torch.bfloat16).to(t.dtype)


def run(
    right: Any,
    truths: Sequence[Truth],
    stale: Any,
    made: Sequence[tuple[str, Any, Sequence[Truth]]] = (),
    judge: Callable[[Any, Sequence[Truth]], Judgement] = judge,
) -> list[Case]:
    """Judge wrong outputs. `right` is the reference's own output, which must pass, for `truths`.

    `stale` is the right output for other inputs. `made` are outputs that the reference's process computed wrongly on
    purpose, each with the truth to hold it against; those of one name are one case, caught if any of them is (the
    candidate has to pass on all of those inputs).
    """
    cases = []
    verdict = judge(right, truths)
    cases.append(Case("the reference's own output passes", verdict.same, verdict.reason or "same"))
    wrong: list[tuple[str, Any]] = [
        ("zeros", substitute(right, torch.zeros_like)),
        ("a constant", substitute(right, _constant)),
        ("the previous inputs' output", stale),
        ("one entry off by 1 %", first_tensor(right, _one_wrong)),
    ]
    floats = all(not isinstance(leaf, Tensor) or leaf.is_floating_point() for _, leaf in leaves(right))
    if floats:
        wrong.append(("one NaN", first_tensor(right, _one_nan)))
    if floats and not made:
        wrong.append(("rounded to 8 bits", substitute(right, _rounded)))
    for name, output in wrong:
        verdict = judge(output, truths)
        cases.append(Case(name, not verdict.same, verdict.reason or "passed as the same"))
    for name in dict.fromkeys(name for name, *_ in made):
        verdicts = [judge(output, against) for other, output, against in made if other == name]
        caught = [v for v in verdicts if not v.same]
        cases.append(Case(name, bool(caught), caught[0].reason if caught else "passed as the same"))
    return cases
