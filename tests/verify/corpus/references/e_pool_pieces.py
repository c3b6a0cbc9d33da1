import torch
import torch.nn as nn


class Model(nn.Module):
    """Log-likelihoods of a Student's t with a learnt, per-entry number of degrees of freedom."""

    def forward(self, x):
        return torch.special.digamma(x + 1.0) - torch.lgamma(x + 0.5)


def get_inputs():
    return [torch.rand(512, 1024) * 10]


def get_init_inputs():
    return []
