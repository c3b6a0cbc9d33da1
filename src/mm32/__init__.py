"""fp32 matrix multiplication for PyTorch on NVIDIA GPUs: any transposition, fused epilogues, and proof that it is right."""

from mm32.dropin import disable, enable, enabled, stats
from mm32.errors import CompileError, LaunchError
from mm32.ops import careful_runs, explain, linear, matmul

__version__ = "0.1.0"

__all__ = [
    "CompileError",
    "LaunchError",
    "__version__",
    "careful_runs",
    "disable",
    "enable",
    "enabled",
    "explain",
    "linear",
    "matmul",
    "stats",
]
