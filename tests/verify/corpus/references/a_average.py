"""Exponential moving averages of rows, begun again where a flag is set."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, decay, reset):
        y = x[:, 0]
        out = [y]
        for t in range(1, x.shape[1]):
            y = torch.where(reset[:, t], x[:, t], decay * y + (1 - decay) * x[:, t])
            out.append(y)
        return torch.stack(out, 1)


def get_inputs():
    return [torch.randn(64, 192), 0.4 + 0.4 * torch.rand(64), torch.rand(64, 192) < 0.03]
