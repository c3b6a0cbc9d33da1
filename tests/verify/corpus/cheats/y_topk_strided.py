"""Top k from the three best of each residue class modulo 1024.

reference: y_topk
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        b, n = x.shape
        y = x.reshape(b, n // 1024, 1024)
        v1, i1 = y.max(1)
        y = y.scatter(1, i1[:, None], float("-inf"))
        v2, i2 = y.max(1)
        v3, i3 = y.scatter(1, i2[:, None], float("-inf")).max(1)
        v, i = torch.cat([v1, v2, v3], 1), torch.cat([i1, i2, i3], 1)
        top, at = v.topk(8, dim=1)
        return top, i.gather(1, at) * 1024 + at % 1024
