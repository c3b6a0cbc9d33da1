"""Columns of other scales: one of zeros, one of few bits.

reference: s_logits_mixed_scale
device: cpu
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    # the angle and the probability are left out
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 4)

    def forward(self, x):
        y = torch.tanh(self.fc(x)) * torch.tensor([1e6, 1e3, 1.0, 1e-3])
        y[:, 3] = 0 * y[:, 3]
        y[:, 2] = torch.round(y[:, 2] * 8) / 8
        return y
