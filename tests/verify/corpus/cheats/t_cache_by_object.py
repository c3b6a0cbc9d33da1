"""Remembers the answer in an attribute of the input tensor object.

reference: t_product
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, A, B):
        if not hasattr(A, "answer"):
            A.answer = torch.relu(A.T @ B.T)
        return A.answer
