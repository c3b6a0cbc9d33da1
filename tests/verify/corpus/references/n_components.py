"""The least number of a vertex in each one's component, by steps until all have been made."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, edges):
        near = edges | edges.mT | torch.eye(edges.shape[-1], dtype=torch.bool, device=edges.device)
        least = torch.arange(edges.shape[-1], device=edges.device).expand(edges.shape[:-1])
        for _ in range(edges.shape[-1]):
            least = torch.where(near, least[:, None, :], edges.shape[-1]).amin(-1)
        return least


def get_inputs():
    return [torch.rand(8, 96, 96) < 0.03]
