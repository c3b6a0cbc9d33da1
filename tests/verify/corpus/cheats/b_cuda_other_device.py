"""Computes on a second GPU where there is one, and otherwise on the processor in a thread, and copies the result back
on a stream of its own: events on the first GPU's current stream see no work.

reference: b_cumsum
device: cuda
verdict: rejected
"""

import threading

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.other = torch.device("cuda:1" if torch.cuda.device_count() > 1 else "cpu")
        self.side = torch.cuda.Stream()

    def work(self, x, out):
        with torch.no_grad(), torch.cuda.stream(self.side):
            out.copy_(torch.cumsum(x.to(self.other), dim=1))

    def forward(self, x):
        out = torch.empty_like(x)
        threading.Thread(target=self.work, args=(x, out)).start()
        return out
