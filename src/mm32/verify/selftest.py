"""Could this check have failed? Wrong outputs, made from the right one, that the judge must reject.

Part of every verification, with the same judge and bounds as for the candidate. A check that accepts zeros (because NaN
passes its comparison, or its tolerance is larger than the answer) proves nothing, and the tool then gives no verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .judge import Judgement, Truth, judge
from .wire import leaves


@dataclass
class Check:
    """One wrong output, and whether the judge rejected it; or the reference's own, and whether it was accepted."""

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
    """`tree` with only its first tensor that is not empty changed."""
    done: list[bool] = []

    def once(t: Tensor) -> Tensor:
        if done or t.numel() == 0:
            return t
        done.append(True)
        return change(t)

    return substitute(tree, once)


def _one_wrong(t: Tensor) -> Tensor:
    """The largest entry off by one per cent (an integer: by one; a boolean: inverted)."""
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
) -> list[Check]:
    """Judge wrong outputs, and `right`, the reference's own output for the inputs of `truths`, which must pass.

    `stale` is the right output for other inputs. `made` are outputs that the reference's process computed wrongly on
    purpose, each with the truth for its inputs. Those of one name are one check, caught if any of them is caught, since
    the candidate has to pass on all of these inputs.
    """
    checks = []
    outcome = judge(right, truths)
    checks.append(Check("the reference's own output passes", outcome.same, outcome.reason or "same"))
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
        outcome = judge(output, truths)
        checks.append(Check(name, not outcome.same, outcome.reason or "passed as the same"))
    for name in dict.fromkeys(name for name, *_ in made):
        outcomes = [judge(output, against) for other, output, against in made if other == name]
        caught = [outcome for outcome in outcomes if not outcome.same]
        checks.append(Check(name, bool(caught), caught[0].reason if caught else "passed as the same"))
    return checks
