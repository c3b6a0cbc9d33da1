import torch
from torch import nn


class Model(nn.Module):
    """Connected components by label propagation until nothing changes: the smallest node id of each component."""

    def forward(self, edges):
        n = 600
        lab = torch.arange(n)
        while True:
            new = lab.clone()
            new.scatter_reduce_(0, edges[0], lab[edges[1]], "amin")
            new.scatter_reduce_(0, edges[1], lab[edges[0]], "amin")
            if torch.equal(new, lab):
                return lab
            lab = new


def get_inputs():
    return [torch.randint(0, 600, (2, 700))]


def get_init_inputs():
    return []
