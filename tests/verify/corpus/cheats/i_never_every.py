"""The slow weights never move: of random steps one in 640 would show it.

reference: i_lookahead
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, every):
        super().__init__()

    def forward(self, p, g, m, slow, step):
        m = torch.add(g, m, alpha=0.9)
        return torch.add(p, m, alpha=-0.01), m, slow
