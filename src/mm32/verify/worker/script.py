"""Load a reference or candidate script, and find its model in it.

The format is KernelBench's: a reference defines `class Model(nn.Module)`, `get_inputs()` and `get_init_inputs()`; a
candidate defines `class ModelNew(nn.Module)`. Each script is loaded in a process of its own.
"""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

GIVES = {
    "get_inputs": "the arguments of forward, as a list",
    "get_init_inputs": "the arguments of the model's constructor, as a list",
}


class ScriptError(Exception):
    """The script lacks a class or a function that it must define."""


@dataclass(frozen=True)
class Script:
    path: Path
    module: ModuleType
    model: Callable[..., nn.Module]

    def function(self, name: str) -> Callable[[], Any]:
        value = getattr(self.module, name, None)
        if not callable(value):
            raise ScriptError(f"{self.path.name} defines no function {name}(), which gives {GIVES[name]}")
        return value


def where_in(path: Path, error: BaseException) -> tuple[int, str] | None:
    """Return the script's own line that raised the exception, or called what raised it: (number, source)."""
    if isinstance(error, SyntaxError) and error.filename == str(path) and error.lineno:
        return error.lineno, (error.text or "").rstrip("\n")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == str(path) and frame.lineno:
            return frame.lineno, linecache.getline(str(path), frame.lineno).rstrip("\n")
    return None


def load(path: Path, class_name: str) -> Script:
    """Run the script at `path` as a module and find its class `class_name`.

    Raises ScriptError if there is no such class, and whatever the script itself raises.
    """
    source = path.read_bytes()
    code = compile(source, str(path), "exec", dont_inherit=True)
    module = ModuleType(f"mm32_verify_{class_name.lower()}")
    module.__file__ = str(path)
    # Dataclasses, pickling and TorchScript look a class's module up by its name.
    sys.modules[module.__name__] = module
    exec(code, module.__dict__)
    model = module.__dict__.get(class_name)
    if not isinstance(model, type):
        known = [
            name for name, value in vars(module).items() if isinstance(value, type) and issubclass(value, nn.Module)
        ]
        hint = f"; it defines {', '.join(known)}" if known else "; it defines no nn.Module at all"
        if class_name == "ModelNew" and "Model" in known:
            hint += ". A candidate's class is called ModelNew, so that it cannot be mistaken for the reference's"
        if class_name == "Model" and "ModelNew" in known:
            hint += ". The reference is the first script, the candidate the second"
        raise ScriptError(f"{path.name} defines no class {class_name}{hint}")
    if not issubclass(model, nn.Module):
        raise ScriptError(f"{path.name}: {class_name} is not a torch.nn.Module")
    return Script(path, module, model)
