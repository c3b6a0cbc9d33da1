"""fp32 matrix multiplication for PyTorch on NVIDIA GPUs: any transposition, fused epilogues, and proof that it is right."""

from mm32 import nn
from mm32.dropin import disable, enable, enabled, stats
from mm32.errors import CompileError, LaunchError
from mm32.nn import replace_linear
from mm32.ops import careful_runs, explain, linear, matmul
from mm32.packed import PackedOperand, pack

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
