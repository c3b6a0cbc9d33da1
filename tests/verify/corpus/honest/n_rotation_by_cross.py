"""Two cross products in place of the matrix: where the reference's answer is infinite, this one's is NaN, by Inf less Inf.

reference: n_rotation
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, q, v):
        q = q / q.norm(dim=-1, keepdim=True)
        t = 2 * torch.linalg.cross(q[..., 1:], v)
        return v + q[..., :1] * t + torch.linalg.cross(q[..., 1:], t)
