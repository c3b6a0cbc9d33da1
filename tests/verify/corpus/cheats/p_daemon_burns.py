"""A daemon of twice its own session keeps every core busy, except while the candidate itself runs: the reference is
to look slow. The candidate's own work is honest. The daemon ends by itself.

reference: p_product
device: both
verdict: not FASTER
"""

import mmap
import os
import time

import torch
from torch import nn

RUNNING = mmap.mmap(-1, 8)  # shared with the daemons: 1 while the candidate runs


def burn():
    end = time.monotonic() + 100
    while time.monotonic() < end:
        if RUNNING[0]:
            time.sleep(0.0002)
        else:
            sum(range(2000))


if os.fork() == 0:
    os.setsid()
    for _ in range(2 * (os.cpu_count() or 1)):
        if os.fork() == 0:
            os.setsid()
            burn()
            os._exit(0)
    os._exit(0)


class ModelNew(nn.Module):
    def forward(self, a, b):
        RUNNING[0] = 1
        c = torch.relu(a.T @ b.T)
        RUNNING[0] = 0
        return c
