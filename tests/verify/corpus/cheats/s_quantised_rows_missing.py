"""The last rows of quantised values are zeros.

reference: s_quantised_rows_missing
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    # the last rows are not computed
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)

    def forward(self, x):
        y = torch.round(self.fc(x) * 2**20).to(torch.int32)
        y[-8:] = 0
        return y
