"""The same statistics in another order of computation.

reference: j_statistics
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        total = x.reshape(x.shape[0], 4, -1).sum(2).sum(1)
        places = torch.argmax(x, dim=1)
        values = x.gather(1, places[:, None])[:, 0]
        return {"mean": total / x.shape[1], "max": (values, places), "above": total > x.shape[1] / 2, "rest": None}
