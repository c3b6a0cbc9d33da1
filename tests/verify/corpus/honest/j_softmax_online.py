"""Online softmax: blocks of 256, the maximum and the sum corrected from block to block.

reference: j_softmax
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        largest = torch.full_like(x[:, :1], -torch.inf)
        total = torch.zeros_like(largest)
        for block in x.split(256, dim=1):
            new = torch.maximum(largest, block.amax(1, keepdim=True))
            total = total * torch.exp(largest - new) + torch.exp(block - new).sum(1, keepdim=True)
            largest = new
        return torch.exp(x - largest) / total
