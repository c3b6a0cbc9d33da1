"""Running products of blocks of 64, times what came before.

reference: w_products
device: both
verdict: SAME
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        blocks = x.view(len(x), -1, 64).cumprod(2)
        before = blocks[:, :, -1].cumprod(1)
        blocks[:, 1:] *= before[:, :-1, None]
        return blocks.view(x.shape)
