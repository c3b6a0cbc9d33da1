"""Step by step.

reference: u_decay
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.decay = nn.Parameter(torch.randn(64, 8))

    def forward(self, x):
        out, state = [], torch.zeros_like(x[:, 0])
        for t in range(64):
            state = state * torch.exp(self.decay[t])[None, :, None] + x[:, t]
            out.append(state)
        return torch.stack(out, 1)
