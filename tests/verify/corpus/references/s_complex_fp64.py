import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, z):
        return torch.fft.fft(z, dim=1)


def get_inputs():
    return [torch.randn(64, 512, dtype=torch.complex64)]


def get_init_inputs():
    return []
