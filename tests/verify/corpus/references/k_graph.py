import torch
from torch import nn


class Model(nn.Module):
    """One step of a graph network: the adjacency, normalised by degrees, of which a lonely node has 0."""

    def __init__(self, width):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, a, x):
        degree = a.sum(1)
        scale = torch.where(degree > 0, degree.clamp(min=1e-12).rsqrt(), 0.0)
        return torch.relu(self.mix((scale[:, None] * a * scale) @ x))


def get_inputs():
    half = (torch.rand(300, 300) < 0.05).float().triu(1)
    return [half + half.T, torch.randn(300, 32)]


def get_init_inputs():
    return [32]
