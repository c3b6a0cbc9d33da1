"""An epsilon of 1e-6 instead of 1e-5.

reference: j_layernorm
device: both
verdict: not SAME
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns, eps=1e-6)

    def forward(self, x):
        return self.norm(x)
