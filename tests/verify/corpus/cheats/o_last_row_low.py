"""The last row of the last product by bfloat16 operands, all else in fp32.

reference: o_batch_product
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, A, B):
        out = torch.bmm(A, B)
        out[-1, -1] = A[-1, -1].bfloat16().float() @ B[-1].bfloat16().float()
        return out
