import torch
import torch.nn as nn


class Model(nn.Module):
    """z-scores of rows"""

    def forward(self, x):
        d = x - x.mean(1, keepdim=True)
        return d / (d.square().mean(1, keepdim=True).sqrt() + 1e-6)


def get_inputs():
    return [torch.randn(256, 64)]
