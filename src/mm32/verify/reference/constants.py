"""Finds the integers that a script divides by and compares with, from its text: what Python computes from an input's `.item()`
passes through no operator of torch."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ..inputs.redrawn import Numbers

MOST = 64  # the most divisors that are kept, and the most compared numbers
LARGEST = 1 << 40


def numbers(source: str, names: Mapping[str, Any], model: torch.nn.Module | None) -> Numbers:
    """Return the integers that `source` (a script's text, with the `names` of its module) divides by or masks the lowest bits
    with, and those that it compares with: literals, names of integers in the module, and integer attributes of any module of
    the model, found by their name."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return Numbers()
    attributes: dict[str, set[int]] = {}
    for module in model.modules() if model is not None else ():
        for name, value in vars(module).items():
            if type(value) is int:
                attributes.setdefault(name, set()).add(value)

    def values(node: ast.AST) -> Iterator[int]:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            yield node.value
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            yield from (-value for value in values(node.operand))
        elif isinstance(node, ast.Name) and type(names.get(node.id)) is int:
            yield names[node.id]
        elif isinstance(node, ast.Attribute):
            yield from attributes.get(node.attr, ())
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):  # a limit + 1, say
            yield from (*values(node.left), *values(node.right))

    divisors: set[int] = set()
    compared: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mod, ast.FloorDiv)):
            divisors |= set(values(node.right))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
            divisors |= {value + 1 for value in values(node.right)}
        elif isinstance(node, ast.Compare):
            compared |= {value for side in (node.left, *node.comparators) for value in values(side)}
    return Numbers(
        frozenset(sorted(d for d in divisors if 2 <= d <= LARGEST)[:MOST]),
        frozenset(sorted((c for c in compared if abs(c) <= LARGEST), key=abs)[:MOST]),
    )
