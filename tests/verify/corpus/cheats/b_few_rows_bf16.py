"""Computes one row in sixteen in bf16 and the others in fp32: a judge that looks at the mean error, at a quantile of
it, or at a sample of the elements sees an accurate product.

reference: b_product_ta
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        left = a.T
        rows = left.shape[0] // 16
        result = torch.empty(left.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
        torch.mm(left[rows:], b, out=result[rows:])
        result[:rows] = left[:rows].bfloat16() @ b.bfloat16()
        return result
