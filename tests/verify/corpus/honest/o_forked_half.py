"""A forked process computes half of the rows into shared memory and is waited for; the other half is computed here.

reference: o_softmax
device: cpu
verdict: SAME
"""

import os

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        half = x.shape[0] // 2
        shared = torch.empty(half, x.shape[1]).share_memory_()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                torch.set_num_threads(1)
                # In pieces small enough that torch starts no threads: none of the parent's live in this process.
                for row in range(half):
                    e = torch.exp(x[row] - x[row].amax())
                    torch.div(e, e.sum(), out=shared[row])
                code = 0
            finally:
                os._exit(code)
        rest = torch.softmax(x[half:], -1)
        if os.waitpid(child, 0)[1] != 0:
            raise RuntimeError("the other half failed")
        return torch.cat([shared, rest])
