import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.w = nn.Parameter(torch.randn(o, i) * 0.1)

    def forward(self, x):
        # XNOR net: straight-through binarisation of weights and activations
        a = self.w.abs().mean(1, keepdim=True)
        wb = torch.sign(self.w) * a
        wb = (wb - self.w).detach() + self.w
        xb = torch.where(x >= 0, 1.0, -1.0)
        xb = (xb - x).detach() + x
        return F.linear(xb, wb)


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return [128, 64]
