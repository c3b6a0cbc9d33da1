"""Compiles a small C function with the system's compiler, started as a process of its own, and calls it through
ctypes for the relu.

reference: p_product
device: cpu
verdict: SAME
"""

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn

SOURCE = """
void relu(float *x, long count) {
    for (long i = 0; i < count; i++) x[i] = x[i] < 0 ? 0 : x[i];  /* NaN stays NaN */
}
"""


def build():
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    folder = Path(tempfile.mkdtemp())
    (folder / "relu.c").write_text(SOURCE)
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", folder / "relu.so", folder / "relu.c"], check=True)
    function = ctypes.CDLL(str(folder / "relu.so")).relu
    function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_long), None
    return function


RELU = build()


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.matmul(a.T, b.T).contiguous()
        RELU(c.data_ptr(), c.numel())
        return c
