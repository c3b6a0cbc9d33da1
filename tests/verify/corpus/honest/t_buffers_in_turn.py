"""Returns one of four buffers in turn: an output is overwritten four calls later.

reference: t_gelu
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.buffers = 0, []

    def forward(self, x, y):
        self.calls += 1
        if len(self.buffers) < 4:
            self.buffers.append(torch.empty_like(x))
        out = self.buffers[self.calls % len(self.buffers)]
        torch.add(x, y, out=out)
        return torch.nn.functional.gelu(out)
