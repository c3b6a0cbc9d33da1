"""Who reaches whom by squaring the matrix, as often as the longest path can ask for.

reference: n_components
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, edges):
        count = edges.shape[-1]
        reached = (edges | edges.mT | torch.eye(count, dtype=torch.bool, device=edges.device)).float()
        for _ in range((count - 1).bit_length()):
            reached = (reached @ reached > 0).float()
        numbers = torch.arange(count, device=edges.device)
        return torch.where(reached > 0, numbers, count).amin(-1)
