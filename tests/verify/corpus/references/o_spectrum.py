"""A learned filter applied in the frequency domain; the spectrum is an output too."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, length):
        super().__init__()
        n = length // 2 + 1
        decay = torch.exp(-torch.arange(n) / (n / 16))
        self.real = nn.Parameter(torch.randn(n) * decay)
        self.imag = nn.Parameter(torch.randn(n) * decay)
        self.register_buffer("inner", ((torch.arange(n) > 0) & (torch.arange(n) < n - 1)).float())

    def forward(self, x):
        spectrum = torch.fft.rfft(x) * torch.complex(self.real, self.imag)
        # of real data the first and the last are real: libraries differ in what they make of others
        whole = torch.complex(spectrum.real, spectrum.imag * self.inner)
        return torch.fft.irfft(whole, n=x.shape[-1]), spectrum


def get_inputs() -> list[object]:
    return [torch.randn(256, 4096)]


def get_init_inputs() -> list[object]:
    return [4096]
