"""Returns an empty tuple where two tensors are expected: a judge that compares pair by pair with zip compares nothing
and finds nothing wrong.

reference: b_row_max
device: both
verdict: not SAME
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return ()
