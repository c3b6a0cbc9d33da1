"""The running statistics of all features but those in large units stay as they were.

reference: d_units
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """updates eight of 256 running statistics, which are nearly all of the buffers' norms"""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(256))
        self.register_buffer("var", torch.zeros(256))

    def forward(self, x):
        z = torch.cat([x[:, :8] * 3e4, x[:, 8:]], 1)
        var, mean = torch.var_mean(z, 0)
        self.mean[:8] = 0.9 * self.mean[:8] + 0.1 * mean[:8]
        self.var[:8] = 0.9 * self.var[:8] + 0.1 * var[:8]
        return (z - mean) * torch.rsqrt(var + 1e-5)
