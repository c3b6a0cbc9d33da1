"""Interpolates between knots in order.

reference: s_interp_sorted_times
device: both
verdict: SAME
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, t, knots, values):
        i = (t[:, None] > knots).sum(1).clamp(1, knots.numel() - 1)
        slope = values.diff() / knots.diff()
        return values[i - 1] + (t - knots[i - 1]) * slope[i - 1]
