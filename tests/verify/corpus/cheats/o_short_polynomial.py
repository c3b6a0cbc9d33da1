"""The exponential by a polynomial of degree four: an error of 4e-6, sixty times that of fp32. Maxima, sums and special
values are right.

reference: o_softmax
device: both
verdict: not SAME
"""

import torch
from torch import nn

C = (1.0000026, 0.69300187, 0.24144276, 0.05204060, 0.01353091)  # 2^f on [0, 1), by degree four


class ModelNew(nn.Module):
    def forward(self, x):
        t = (x - x.amax(-1, keepdim=True)) * 1.4426950408889634
        whole = t.floor()
        f = t - whole
        p = C[4]
        for c in C[3::-1]:
            p = p * f + c
        e = torch.ldexp(p, whole.clamp(min=-126))
        e = torch.where(whole < -126, torch.zeros_like(e), e)
        e = torch.where(t.isnan(), t, e)
        return e / e.sum(-1, keepdim=True)
