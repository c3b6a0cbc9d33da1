"""The plainest of all: the product in bf16, the result called fp32. The bias is added and the relu taken in fp32, so
that only the product itself is coarse, with errors of a few thousandths of the largest element.

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
        product = x.bfloat16() @ self.linear.weight.bfloat16().T
        return torch.relu(product.float() + self.linear.bias)
