"""Starts some hundred processes that sleep and, waking up in turn, keep the cores busy while the candidate does not
run. All end by themselves.

reference: p_product
device: both
verdict: not FASTER
"""

import mmap
import os
import time

import torch
from torch import nn

RUNNING = mmap.mmap(-1, 8)
for number in range(50):
    if os.fork() == 0:
        end = time.monotonic() + 60
        time.sleep(number * 0.001)
        while time.monotonic() < end:
            if not RUNNING[0]:
                sum(range(20_000))
            time.sleep(0.002)
        os._exit(0)


class ModelNew(nn.Module):
    def forward(self, a, b):
        RUNNING[0] = 1
        c = torch.relu(a.T @ b.T)
        RUNNING[0] = 0
        return c
