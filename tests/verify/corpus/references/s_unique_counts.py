import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, idx):
        return torch.unique(idx, return_counts=True)


def get_inputs():
    return [torch.randint(0, 3000, (2000,))]


def get_init_inputs():
    return []
