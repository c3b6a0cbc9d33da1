"""fp32 matrix multiplication for PyTorch on NVIDIA GPUs: any transposition, fused epilogues, and proof that it is right."""

from typing import TYPE_CHECKING

from mm32.errors import CompileError, LaunchError

__version__ = "0.1.0"

__all__ = [
    "CompileError",
    "LaunchError",
    "PackedOperand",
    "__version__",
    "careful_runs",
    "disable",
    "enable",
    "enabled",
    "explain",
    "linear",
    "matmul",
    "nn",
    "pack",
    "replace_linear",
    "stats",
]

# Where torch is missing or broken, the package can still be imported, so that `mm32 env` can say so: the error waits for the
# first use of a name that needs torch. (Any exception: a broken torch raises OSError or AttributeError as well as ImportError.)
_failure: Exception | None = None
try:
    from mm32 import nn
    from mm32.dropin import disable, enable, enabled, stats
    from mm32.nn import replace_linear
    from mm32.ops import careful_runs, explain, linear, matmul
    from mm32.packed import PackedOperand, pack
except Exception as error:
    _failure = error

if not TYPE_CHECKING:  # a type checker would take any name for an attribute

    def __getattr__(name: str) -> object:
        if _failure is not None and name in __all__:
            raise ImportError(
                f"mm32.{name} needs torch, and that failed: {type(_failure).__name__}: {_failure} "
                "(`mm32 env` shows what is missing)"
            ) from _failure
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
