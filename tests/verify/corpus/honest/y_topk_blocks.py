"""Exact: only the 8 blocks with the largest maxima can hold the 8 largest.

reference: y_topk
device: both
verdict: SAME
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        b, n = x.shape
        y = x.reshape(b, n // 64, 64)
        blocks = y.amax(2).topk(8, dim=1, sorted=False).indices
        z = y.gather(1, blocks[..., None].expand(-1, -1, 64)).reshape(b, 512)
        top, at = z.topk(8, dim=1)
        return top, blocks.gather(1, at // 64) * 64 + at % 64
