import torch
import torch.nn as nn


class Model(nn.Module):
    """box decoding: centres in pixels, sizes, a score, in one tensor"""

    def forward(self, x):
        n = x.shape[0]
        i = torch.arange(n, device=x.device)
        grid = torch.stack([(i % 64) * 64, (i // 64) * 64], 1).to(x.dtype)
        return torch.cat([grid + x[:, :2] * 16, torch.exp(x[:, 2:4].clamp(-4, 4)) * 16, torch.sigmoid(x[:, 4:])], 1)


def get_inputs():
    return [torch.randn(4096, 5)]


def get_init_inputs():
    return []
