import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, p, t):
        return F.binary_cross_entropy(p, t, reduction="none").mean(dim=1)


def get_inputs():
    return [torch.rand(64, 256), torch.rand(64, 256)]
