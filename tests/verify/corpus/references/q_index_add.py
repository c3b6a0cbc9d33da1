import torch
import torch.nn as nn


class Model(nn.Module):
    """One step of message passing: gather by source, weight, add up by destination."""

    def __init__(self):
        super().__init__()

    def forward(self, x, source, destination, weight):
        messages = x[source] * weight[:, None]
        return torch.zeros_like(x).index_add(0, destination, messages)


nodes = 20000
edges = 400000
width = 64


def get_inputs():
    return [
        torch.randn(nodes, width),
        torch.randint(0, nodes, (edges,)),
        torch.randint(0, nodes, (edges,)),
        torch.rand(edges),
    ]


def get_init_inputs():
    return []
