"""Leaves a burden behind: after its own work it queues some milliseconds of products on a low-priority stream, which
run while the reference is timed next. It queues them only if the previous call was a while ago, that is, if something
else is timed in between.

reference: b_softmax
device: cuda
verdict: not FASTER
"""

import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream(priority=0)
        self.block = None
        self.left = 0.0

    def forward(self, x):
        called = time.monotonic()
        result = torch.softmax(x, dim=1)
        if self.block is None:
            self.block = torch.rand(4096, 4096, device=x.device)
        if called - self.left > 0.001:
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                for _ in range(4):
                    torch.mm(self.block, self.block)
        self.left = time.monotonic()
        return result
