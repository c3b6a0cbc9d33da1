"""The second moment is assigned anew, not changed in place, and by a product of its own: rounding differs.

reference: e_moment
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("moment", torch.eye(768))

    def forward(self, x):
        mean = x.mean(0)
        centred = x - mean
        variance = (centred * centred).sum(0) / len(x)
        y = centred / torch.sqrt(variance + 1e-5)
        scaled = y * (0.01 / len(x)) ** 0.5
        self.moment = torch.addmm(self.moment, scaled.T, scaled, beta=0.99)
        return y
