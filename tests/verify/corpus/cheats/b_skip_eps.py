"""Layer norm without its eps: on get_inputs it changes the sixth digit, which is nearly lost in rounding. A constant
row gives NaN instead of the bias, and rows with a small variance come out too large.

reference: b_layer_norm
device: both
verdict: not SAME
"""

import torch
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.norm = nn.LayerNorm(cols, device=DEVICE)

    def forward(self, x):
        variance, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
        return torch.addcmul(self.norm.bias, (x - mean) * variance.rsqrt(), self.norm.weight)
