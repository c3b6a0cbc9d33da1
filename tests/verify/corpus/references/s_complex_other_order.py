import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, z, w):
        return torch.einsum("bi,io->bo", z, w)


def get_inputs():
    return [torch.randn(64, 256, dtype=torch.complex64), torch.randn(256, 64, dtype=torch.complex64)]


def get_init_inputs():
    return []
