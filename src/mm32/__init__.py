"""fp32 matrix multiplication for PyTorch on NVIDIA GPUs: any transposition, fused epilogues, and a tool that tests kernels."""

import importlib
import os
import sys
from typing import TYPE_CHECKING

from mm32 import settings
from mm32.errors import CompileError, LaunchError

__version__ = "0.1.0"

__all__ = [
    "CompileError",
    "LaunchError",
    "PackedOperand",
    "__version__",
    "disable",
    "distributed",
    "enable",
    "enabled",
    "explain",
    "export",
    "freeze",
    "is_enabled",
    "linear",
    "matmul",
    "nn",
    "numerics",
    "pack",
    "replace_linear",
    "set_workspace_limit",
    "stats",
    "unfreeze",
    "verify",
    "workspace_limit",
]

settings.apply()

# `mm32 verify` and `mm32 demo` need a second process that has imported torch. It is started here, so that both processes import
# torch at the same time: that saves two seconds of five.
if sys.argv[1:2] in (["verify"], ["demo"]) and sys.argv[0].endswith("/mm32") and "--help" not in sys.argv:
    # Threads that spin would take cores from the processes that are verified.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    importlib.import_module("mm32.verify.processes.launch").shared()

# Where torch is missing or broken, the package can still be imported, so that `mm32 env` can say so: the error is raised at the
# first use of a name that needs torch. (Any exception: a broken torch raises OSError or AttributeError as well as ImportError.)
_failure: Exception | None = None
try:
    from mm32 import nn
    from mm32.enabling import disable, enable, enabled, is_enabled, stats
    from mm32.functions import explain, linear, matmul
    from mm32.nn import freeze, replace_linear, unfreeze
    from mm32.packed import PackedOperand, pack
    from mm32.workspace import set_workspace_limit, workspace_limit
except Exception as error:
    _failure = error

if TYPE_CHECKING:
    from mm32 import distributed, export, numerics, verify
else:  # with this function, a type checker would accept any name as an attribute

    def __getattr__(name: str) -> object:
        # These are loaded when they are first used.
        if name in ("distributed", "export", "numerics", "verify") and _failure is None:
            return importlib.import_module(f"mm32.{name}")
        if _failure is not None and name in __all__:
            raise ImportError(
                f"mm32.{name} needs torch, and that failed: {type(_failure).__name__}: {_failure} "
                "(`mm32 env` shows what is missing)"
            ) from _failure
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
