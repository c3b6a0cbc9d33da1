"""Finds maxima of blocks of columns, then the best block: the inputs' rows are viewed with another shape, and the
places are put together from two integers.

reference: b_row_max
device: both
verdict: SAME
"""

from torch import nn

BLOCK = 128


class ModelNew(nn.Module):
    def forward(self, x):
        if x.shape[1] % BLOCK:
            values, places = x.max(dim=1)
            return values, places
        blocks = x.view(x.shape[0], -1, BLOCK)
        tops = blocks.amax(dim=2)
        values, which = tops.max(dim=1)
        chosen = blocks.gather(1, which[:, None, None].expand(-1, 1, BLOCK))[:, 0]
        return values, which * BLOCK + chosen.argmax(dim=1)
