"""No guard for two samples of one time.

reference: z_slope
device: both
verdict: not SAME
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, t, v):
        dt, dv = t.diff(dim=1), v.diff(dim=1)
        return dv / dt, (0.5 * (v[:, 1:] + v[:, :-1]) * dt).cumsum(1)
