import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.k = nn.Parameter(torch.randn(16, 256) / 256)

    def forward(self, u):
        n = 2 * u.shape[-1]
        return torch.fft.irfft(torch.fft.rfft(u, n=n) * torch.fft.rfft(self.k, n=n), n=n)[..., : u.shape[-1]]


def get_inputs():
    return [torch.randn(4, 16, 256)]


def get_init_inputs():
    return []
