import torch
import torch.nn as nn


class Model(nn.Module):
    """The distances to the nearest neighbours, in order."""

    def __init__(self, neighbours):
        super().__init__()
        self.neighbours = neighbours

    def forward(self, x, y):
        distances = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
        return torch.topk(distances, self.neighbours, dim=1, largest=False).values


queries = 1024
points = 2048
width = 64


def get_inputs():
    return [torch.rand(queries, width), torch.rand(points, width)]


def get_init_inputs():
    return [4]
