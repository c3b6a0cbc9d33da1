"""Softmax without subtracting the largest element first: as accurate on numbers of ordinary size, and one pass shorter,
but infinite or NaN as soon as an input exceeds 88. It is right only for what get_inputs happens to draw.

reference: b_softmax
device: both
verdict: rejected
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        e = x.exp()
        return e.div_(e.sum(dim=1, keepdim=True))
