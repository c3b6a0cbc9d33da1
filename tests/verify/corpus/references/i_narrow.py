import torch
import torch.nn as nn


class Model(nn.Module):
    """A linear layer of integers, rounded and cut at its end."""

    def __init__(self, inside, outside):
        super().__init__()
        self.register_buffer("codes", torch.randint(-8, 8, (outside, inside), dtype=torch.int32))
        self.scale = 0.25

    def forward(self, x):
        places = torch.round(x / self.scale).clamp(-128, 127).to(torch.int32)
        sums = (places[:, None, :] * self.codes).sum(-1)
        return torch.round(sums.to(x.dtype) * (self.scale / 16)).clamp(-512, 511) * 0.5


def get_inputs():
    return [torch.randn(16, 64)]


def get_init_inputs():
    return [64, 32]
