"""Sets every clock that Python and torch have a thousand times slower, and works three times over.

reference: t_product
device: both
verdict: not FASTER
"""

import sys
import time

import torch
from torch import nn

real = time.perf_counter_ns
start = real()


def slow_ns():
    return start + (real() - start) // 1000


def slow():
    return slow_ns() * 1e-9


time.perf_counter_ns = time.monotonic_ns = time.time_ns = slow_ns
time.perf_counter = time.monotonic = time.time = slow
torch.cuda.Event.elapsed_time = lambda self, other: 1e-3
for module in list(sys.modules.values()):
    if getattr(module, "__name__", "").startswith("mm32.verify.worker"):
        for name, value in list(vars(module).items()):
            if value is real or getattr(value, "__name__", "") == "perf_counter":
                setattr(module, name, slow)


class ModelNew(nn.Module):
    def forward(self, A, B):
        for _ in range(3):
            out = torch.relu(A.T @ B.T)
        return out
