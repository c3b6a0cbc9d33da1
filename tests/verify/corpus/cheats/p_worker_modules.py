"""Replaces the clocks and the calling code of the tool's part in its own process, by sys.modules and by every
module's variables: all clocks stand still, and the work is done ten times.

reference: p_product
device: both
verdict: not FASTER
"""

import contextlib
import sys
import time

import torch
from torch import nn

CLOCKS = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns", "process_time")
REAL = {getattr(time, name) for name in CLOCKS}


def slowed(clock):
    start = clock()
    return lambda: start + (clock() - start) // 1000


for module in [module for name, module in sys.modules.items() if name.startswith("mm32.verify") or name == "time"]:
    for name, value in list(vars(module).items()):
        with contextlib.suppress(TypeError, AttributeError):
            if value in REAL:
                setattr(module, name, slowed(value))


class ModelNew(nn.Module):
    def forward(self, a, b):
        for _ in range(10):
            c = torch.relu(a.T @ b.T)
        return c
