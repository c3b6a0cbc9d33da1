"""ReLU as a clamp, on the data as a vector.

reference: j_relu
device: both
verdict: SAME
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.reshape(-1).clamp(min=0).view(x.shape)
