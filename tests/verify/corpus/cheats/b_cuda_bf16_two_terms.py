"""Splits each operand into two bf16 numbers and adds three of the four products in fp32: sixteen bits of each operand
instead of twenty-four. A hundred times as accurate as bf16, and still thirty times less accurate than fp32.

reference: b_product_ta
device: cuda
verdict: not SAME
"""

import torch
from torch import nn


def split(x):
    high = x.bfloat16()
    return high, (x - high.float()).bfloat16()


class ModelNew(nn.Module):
    def forward(self, a, b):
        a_high, a_low = split(a.T.contiguous())
        b_high, b_low = split(b)
        result = torch.mm(a_high, b_low, out_dtype=torch.float32)
        result += torch.mm(a_low, b_high, out_dtype=torch.float32)
        result += torch.mm(a_high, b_high, out_dtype=torch.float32)
        return result
