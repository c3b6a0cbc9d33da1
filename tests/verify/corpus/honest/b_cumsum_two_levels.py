"""Running sums in two levels: within blocks, and of the blocks' sums. Another order of additions, with smaller errors
than a single chain of them. A block's sum is added and taken away again: a NaN or an Inf in a block makes NaN of the
entries before it, which the verdict's line says.

reference: b_cumsum
device: both
verdict: SAME
"""

from torch import nn

BLOCK = 64


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        if cols % BLOCK:
            return x.cumsum(dim=1)
        inner = x.view(rows, cols // BLOCK, BLOCK).cumsum(dim=2)
        totals = inner[:, :, -1]
        before = totals.cumsum(dim=1) - totals
        return inner.add_(before.unsqueeze(2)).view(rows, cols)
