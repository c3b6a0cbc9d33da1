"""Tensors that a model keeps as plain attributes, in lists and in modules inside lists: neither parameters nor buffers.

They are as the constructor made them; only this module copies them from one model to another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

MOST = 4096  # the most values of a container, and the most tensors of a model, that are looked at
DEEPEST = 8  # the deepest nesting of containers and modules that is looked at


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return these tensors by name, each once: "scale", "blocks.0.1.weight"."""
    # Read from the dictionaries: a script's attributes may have the names of the methods.
    registered = {
        id(t) for _, m in nn.Module.named_modules(model) for t in (*m._parameters.values(), *m._buffers.values())
    }
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for number, (name, t) in enumerate(_module("", model, 0)):
        if number >= MOST:
            break
        if id(t) not in registered and id(t) not in seen and t.numel():
            found[name] = t.detach()
            seen.add(id(t))
    return found


def _module(prefix: str, module: nn.Module, depth: int) -> Iterator[tuple[str, Tensor]]:
    for path, one in nn.Module.named_modules(module):
        where = ".".join(part for part in (prefix, path) if part)
        if depth:  # inside a list, parameters and buffers are not the model's
            for name, t in (*one._parameters.items(), *one._buffers.items()):
                if isinstance(t, Tensor):
                    yield f"{where}.{name}", t
        for name, value in vars(one).items():
            if not name.startswith("_"):
                yield from _value(f"{where}.{name}" if where else name, value, depth + 1)


def _value(where: str, value: Any, depth: int) -> Iterator[tuple[str, Tensor]]:
    if depth > DEEPEST:
        return
    if isinstance(value, Tensor):
        if type(value) in (Tensor, nn.Parameter) and value.layout == torch.strided:
            yield where, value
    elif isinstance(value, nn.Module):
        yield from _module(where, value, depth)
    elif isinstance(value, (list, tuple, dict)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in list(items)[:MOST]:
            yield from _value(f"{where}.{key}", one, depth + 1)


def put(model: nn.Module, given: dict[str, Tensor]) -> list[str]:
    """Give `model` these values if it has tensors of all these names and shapes, as plain attributes or not.

    Return the names that it lacks; if there are any, nothing is copied."""
    if not given:
        return []
    own = {**tensors(model), **{name: t for name, t in model.state_dict().items() if isinstance(t, Tensor)}}
    lacks = [name for name, t in given.items() if name not in own or own[name].shape != t.shape]
    if not lacks:
        with torch.no_grad():
            for name, t in given.items():
                own[name].copy_(t)
    return lacks
