"""Multiplies in fp32 but for an eighth of the inner dimension, which it multiplies in bf16: the error is a third of
that of bf16 and, added to the rest, looks like noise. On a fast bf16 unit it saves an eighth of the time.

reference: b_linear_relu
device: both
verdict: not SAME
"""

import torch
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class ModelNew(nn.Module):
    def __init__(self, inner, cols):
        super().__init__()
        self.linear = nn.Linear(inner, cols, device=DEVICE)

    def forward(self, x):
        weight = self.linear.weight
        cut = x.shape[1] // 8
        tail = x[:, :cut].bfloat16() @ weight[:, :cut].bfloat16().T
        result = torch.addmm(self.linear.bias, x[:, cut:], weight[:, cut:].T)
        return result.add_(tail).relu_()
