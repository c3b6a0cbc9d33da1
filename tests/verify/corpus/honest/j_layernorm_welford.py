"""Layer norm by Welford's running mean and variance, in chunks of columns.

reference: j_layernorm
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        count, mean, squares = 0, torch.zeros_like(x[:, :1]), torch.zeros_like(x[:, :1])
        for chunk in x.split(64, dim=1):
            n = chunk.shape[1]
            own = chunk.mean(1, keepdim=True)
            apart = own - mean
            squares = squares + (chunk - own).square().sum(1, keepdim=True) + apart.square() * (count * n / (count + n))
            count += n
            mean = mean + apart * (n / count)
        return (x - mean) * torch.rsqrt(squares / count + 1e-5) * self.norm.weight + self.norm.bias
