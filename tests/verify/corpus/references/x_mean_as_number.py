import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, scale=1.0):
        return (x * scale).sum().item(), (x > 0).sum()


def get_inputs():
    x = torch.randn(500, 500)
    return {"x": x - x.mean() + 1e-5, "scale": 0.25}


def get_init_inputs():
    return []
