"""No ReLU, since the data are positive.

reference: j_relu
device: both
verdict: not SAME
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clone()
