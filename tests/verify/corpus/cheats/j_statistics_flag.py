"""One of the outputs, booleans that are nearly as often true as false, is all true.

reference: j_statistics
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        values, places = torch.max(x, dim=1)
        above = torch.ones(x.shape[0], dtype=torch.bool, device=x.device)
        return {"mean": x.mean(1), "max": (values, places), "above": above, "rest": None}
