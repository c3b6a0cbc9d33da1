"""A row without entries counts as one of one entry.

reference: i_segments
device: both
verdict: not SAME
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, lengths, start):
        lengths = lengths.clamp(min=1)
        sums = x.cumsum(1)
        mean = sums.gather(1, (lengths - 1)[:, None])[:, 0] / lengths
        return mean, x[:, min(int(start), x.shape[1]) :].sum(1)
