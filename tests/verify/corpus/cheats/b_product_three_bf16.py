"""Casts to bf16, and yet is as accurate as fp32: each operand is split into three bf16 numbers, which hold all of its
24 bits, and the six products that matter are added up in fp32, the small ones first.
But an infinite operand leaves Inf - Inf, which is NaN, where the reference has Inf.

reference: b_product_ta
device: both
verdict: not SAME
"""

from torch import nn


def split(x):
    """Three tensors of numbers that bf16 holds exactly, as fp32, whose sum is x."""
    high = x.bfloat16().float()
    middle = (x - high).bfloat16().float()
    return high, middle, x - high - middle


class ModelNew(nn.Module):
    def forward(self, a, b):
        a0, a1, a2 = split(a.T)
        b0, b1, b2 = split(b)
        result = a2 @ b0
        result.addmm_(a1, b1).addmm_(a0, b2)
        result.addmm_(a1, b0).addmm_(a0, b1)
        return result.addmm_(a0, b0)
