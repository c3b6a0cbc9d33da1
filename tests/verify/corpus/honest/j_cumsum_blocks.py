"""Running sums in blocks of 128, each begun with the sum of those before.

reference: j_cumsum
device: both
verdict: SAME
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        blocks = x.reshape(x.shape[0], -1, 128)
        inside = blocks.cumsum(2)
        before = inside[:, :, -1].cumsum(1).roll(1, 1)
        before[:, 0] = 0
        return (inside + before[:, :, None]).reshape(x.shape)
