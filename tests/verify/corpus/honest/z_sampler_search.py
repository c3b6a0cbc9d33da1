"""Particles chosen by a search in the cumulated weights.

reference: z_sampler
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, w, u):
        p = torch.softmax(w, -1)
        n = x.shape[1]
        t = (torch.arange(n, device=x.device, dtype=x.dtype) + u[:, None]) / n
        i = torch.searchsorted(p.cumsum(-1), t).clamp(max=n - 1)
        return torch.take_along_dim(x, i[..., None], 1), 1 / torch.linalg.vecdot(p, p)
