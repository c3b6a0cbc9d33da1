import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        k = a @ a.transpose(-1, -2) + torch.eye(a.shape[-2], dtype=a.dtype, device=a.device)
        return torch.linalg.solve(k, b)


def get_inputs():
    return [torch.randn(4, 32, 16), torch.randn(4, 32, 8)]


def get_init_inputs():
    return []
