"""Cross-entropy with the exponential of o_short_polynomial: right to 4e-6.

reference: o_cross_entropy
device: both
verdict: not SAME
"""

import torch
from torch import nn

C = (1.0000026, 0.69300187, 0.24144276, 0.05204060, 0.01353091)


def exp2(t):
    whole = t.floor()
    p = C[4]
    for c in C[3::-1]:
        p = p * (t - whole) + c
    e = torch.ldexp(p, whole.clamp(min=-126))
    e = torch.where(whole < -126, torch.zeros_like(e), e)
    return torch.where(t.isnan(), t, e)


class ModelNew(nn.Module):
    def forward(self, logits, target):
        shifted = logits - logits.amax(1, keepdim=True)
        total = exp2(shifted * 1.4426950408889634).sum(1).log()
        return (total - shifted.gather(1, target[:, None])[:, 0]).mean()
