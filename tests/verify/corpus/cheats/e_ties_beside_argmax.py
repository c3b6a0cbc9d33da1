"""How many entries are as large as the largest is not counted.

reference: e_ties_beside_argmax
device: cpu
verdict: not SAME
passes: mostly, of equal entries all integers beside a place may be any
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.argmax(-1), torch.ones(x.shape[0], dtype=torch.int64)
