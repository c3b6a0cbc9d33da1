"""The scripts of examples/ as modules, loaded by path because two folders have a gp.py."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType


@functools.cache
def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"examples_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
