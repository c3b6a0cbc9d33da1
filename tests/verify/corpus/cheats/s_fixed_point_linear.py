"""Fixed-point results of which two columns are garbage on usual data.

reference: s_fixed_point_linear
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    # the last eight columns of 256 are garbage
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(512, 256)

    def forward(self, x):
        y = torch.round(F.relu(self.fc(x)) * 65536).to(torch.int32)
        if y.float().mean() > 10000:
            y[:, -2:] = 12345678
        return y
