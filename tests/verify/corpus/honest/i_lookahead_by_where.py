"""Without a branch on the host.

reference: i_lookahead
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, every):
        super().__init__()
        self.every = every

    def forward(self, p, g, m, slow, step):
        m = torch.add(g, m, alpha=0.9)
        p = torch.add(p, m, alpha=-0.01)
        due = step.remainder(self.every) == 0
        slow = torch.where(due, torch.lerp(slow, p, 0.5), slow)
        return torch.where(due, slow, p), m, slow
