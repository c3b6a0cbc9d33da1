"""What is said of a value that cannot be handed over: where it is, what it is, and what to give instead."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from torch import Tensor, nn

from ..exchange import wire

PLAIN = "tensors, numbers, texts, lists, tuples, named tuples and dicts"

# For each kind of value: what to do instead where it is an input, an output, a constructor's argument, or part of the state.
# A star stands for every other place.
INSTEAD: dict[str, dict[str, str]] = {
    "numpy": {
        "input": "give torch.from_numpy(x) in get_inputs()",
        "output": "return a tensor, torch.from_numpy(x) for instance",
        "*": "give a tensor, torch.from_numpy(x)",
    },
    "numpy number": {"*": "give a number, x.item()"},
    "sparse": {
        "input": "give its indices and values, and build it in forward; or give x.to_dense()",
        "output": "return x.to_dense(), or its indices and values",
        "*": "give its indices and values, and build it from them",
    },
    "quantised": {"output": "return x.int_repr() or x.dequantize()", "*": "give x.int_repr(), its scale and its zero point"},
    "nested": {
        "output": "return a list of tensors, or padded values and their lengths",
        "*": "give a list of tensors, or padded values and their lengths",
    },
    "dtype": {"output": "return it in another dtype, as float32", "*": "give another dtype, and convert it in forward"},
    "dataclass": {"output": "return a dict or a named tuple of its fields", "*": "give a dict or a named tuple of its fields"},
    "code": {
        "init": "give its name as a text, and look it up in __init__",
        "input": "make it in __init__, or give its name as a text",
    },
    "other": {
        "init": f"constructors' arguments are {PLAIN}; make anything else in __init__",
        "input": f"inputs are {PLAIN}; make anything else in forward",
        "output": f"outputs are {PLAIN}; return what it holds as these",
        "*": f"values are {PLAIN}",
    },
}  # fmt: skip


def explain(error: wire.Unsupported, op: str, names: list[str] | None = None) -> str:
    """Return one sentence on a value that the answer to the request `op` cannot hold. `names`: the inputs', if they have any."""
    place, where = _where(error.path, op, names)
    if error.value is None:  # too many values, too deep, or odd keys
        return f"{where}: {error}"
    kind, what = _what(error)
    instead = INSTEAD[kind].get(place) or INSTEAD[kind].get("*") or INSTEAD["other"].get(place) or INSTEAD["other"]["*"]
    return f"{where} is {what}, which cannot be handed over and compared: {instead}"


def _where(path: str, op: str, names: list[str] | None) -> tuple[str, str]:
    """Return what kind of place a path leads to, and the place itself in a reader's words."""
    if op in ("make_inputs", "get_inputs"):
        first = re.match(r"\[(\d+)\]", path)
        if names and first and int(first[1]) < len(names):
            path = f"[{names[int(first[1])]!r}]{path[first.end() :]}"
        return "input", f"input{path}"
    if op == "construct" and path.startswith("['init']"):
        return "init", "get_init_inputs()" + path.removeprefix("['init']")
    if op == "construct":
        return "state", "state_dict()" + path.removeprefix("['state']")
    return "output", f"output{path}"


def _what(error: wire.Unsupported) -> tuple[str, str]:
    """Return the kind of a value, a key of INSTEAD, and what it is in words."""
    value: Any = error.value
    of = type(value)
    name = (
        of.__qualname__
        if of.__module__.startswith(("builtins", "mm32_verify_"))
        else f"{of.__module__}.{of.__qualname__}"
    )
    if isinstance(value, Tensor):
        if value.is_nested:
            return "nested", "a nested tensor"
        if value.is_quantized:
            return "quantised", f"a quantised tensor ({value.dtype})"
        if value.dtype not in wire.DTYPE_NAMES:
            return "dtype", f"a tensor of {value.dtype}"
        return "sparse", f"a {'sparse ' if 'sparse' in str(value.layout) else ''}tensor of layout {value.layout}"
    if of.__module__ == "numpy":
        return ("numpy" if of.__name__ == "ndarray" else "numpy number"), f"a {name}"
    if dataclasses.is_dataclass(of):
        return "dataclass", f"a dataclass ({of.__name__})"
    if isinstance(value, (type, nn.Module)) or callable(value):
        kind = "class" if isinstance(value, type) else "module" if isinstance(value, nn.Module) else "function"
        own = value if hasattr(value, "__qualname__") else of
        return "code", f"a {kind} ({own.__qualname__})"
    return "other", f"a {name}"
