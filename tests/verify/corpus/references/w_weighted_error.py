import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x, y, w):
        error = F.smooth_l1_loss(x, y, reduction="none").mean(1)
        return (error * w).sum() / w.sum(), torch.tanh(x) * w[:, None]


def get_inputs():
    return [torch.randn(256, 64), torch.randn(256, 64), torch.ones(256)]


def get_init_inputs():
    return []
