"""Adds two tracks of 16-bit sound, and clips."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return (a.to(torch.int32) + b.to(torch.int32)).clamp(-32768, 32767).to(torch.int16)


def get_inputs():
    return [(torch.randn(8, 1000) * 3000).to(torch.int16) for _ in range(2)]
