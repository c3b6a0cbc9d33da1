"""Softmax in place in an output of its own; the row maxima and sums go to scratch memory that the module keeps (never
returned).

reference: o_softmax
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self._scratch = {}

    def forward(self, x):
        key = (x.shape[0], x.device)
        if key not in self._scratch:
            self._scratch[key] = torch.empty(x.shape[0], 1, device=x.device)
        row = self._scratch[key]
        out = torch.empty_like(x)
        for part in range(0, x.shape[0], 128):
            block, here, r = x[part : part + 128], out[part : part + 128], row[part : part + 128]
            torch.amax(block, 1, keepdim=True, out=r)
            torch.sub(block, r, out=here).exp_()
            torch.sum(here, 1, keepdim=True, out=r)
            here.div_(r)
        return out
