"""Leaves out the frequencies at which the filter is below a hundred-thousandth of its largest value: zeros where small numbers
belong.

reference: o_spectrum
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, length):
        super().__init__()
        n = length // 2 + 1
        decay = torch.exp(-torch.arange(n) / (n / 16))
        self.real = nn.Parameter(torch.randn(n) * decay)
        self.imag = nn.Parameter(torch.randn(n) * decay)
        self.register_buffer("inner", ((torch.arange(n) > 0) & (torch.arange(n) < n - 1)).float())

    def forward(self, x):
        filt = torch.complex(self.real, self.imag)
        size = filt.abs()
        filt = torch.where(size < 1e-5 * size.amax(), torch.zeros_like(filt), filt)
        spectrum = torch.fft.rfft(x) * filt
        # of real data the first and the last are real: libraries differ in what they make of others
        whole = torch.complex(spectrum.real, spectrum.imag * self.inner)
        return torch.fft.irfft(whole, n=x.shape[-1]), spectrum
