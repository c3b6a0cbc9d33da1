"""Forges the clocks at the level of Python: replaces the functions of the time module, and every name in any loaded
module that holds one of them, by functions that run at a tenth of the speed; timeit's default timer and torch's Event
too. The patch is laid at the third call, after a judge has had the time to check that nothing was patched at import.

reference: b_layer_norm
device: both
verdict: not FASTER
"""

import sys
import time
import timeit

import torch
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
NAMES = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns", "process_time")


def slowed(clock):
    origin = clock()
    whole = isinstance(origin, int)

    def forged():
        passed = clock() - origin
        return origin + (passed // 10 if whole else passed / 10)

    return forged


def lay_patches():
    forged = {}
    for name in NAMES:
        clock = getattr(time, name)
        forged[id(clock)] = slowed(clock)
    for module in list(sys.modules.values()):
        for key, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in forged:
                setattr(module, key, forged[id(value)])
    timeit.Timer.__init__.__defaults__ = ("pass", "pass", time.perf_counter, None)
    if torch.cuda.is_available():
        true = torch.cuda.Event.elapsed_time
        torch.cuda.Event.elapsed_time = lambda start, end: true(start, end) / 10


class ModelNew(nn.Module):
    calls = 0

    def __init__(self, cols):
        super().__init__()
        self.norm = nn.LayerNorm(cols, device=DEVICE)

    def forward(self, x):
        ModelNew.calls += 1
        if ModelNew.calls == 3:
            lay_patches()
        return self.norm(x)
