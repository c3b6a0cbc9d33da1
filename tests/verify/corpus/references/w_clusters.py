import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x, c):
        for _ in range(3):
            place = (x[:, None] - c).square().sum(-1).argmin(1)
            one = F.one_hot(place, len(c)).float()
            count = one.sum(0)[:, None]
            c = torch.where(count > 0, one.T @ x / count.clamp(min=1), c)
        return c


def get_inputs():
    return [torch.randn(512, 16), torch.randn(8, 16)]


def get_init_inputs():
    return []
