"""Softmax whose exponent is one fused multiply-add, x log2(e) less the maximum's rounded product, as flash attention has it:
where the maximum itself is, the power is not quite one.

reference: b_softmax
device: both
verdict: SAME
"""

import torch
from torch import nn

LOG2E = torch.tensor(1.4426950408889634, dtype=torch.float32).double()


class ModelNew(nn.Module):
    def forward(self, x):
        factor = LOG2E.to(x.device)
        shift = (x.amax(1, keepdim=True) * factor.float()).double()
        e = torch.exp2((x.double() * factor - shift).float())
        return e / e.sum(1, keepdim=True)
