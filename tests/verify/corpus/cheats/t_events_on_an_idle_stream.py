"""Has every event recorded on a stream that has nothing to do, and works twice.

reference: t_product
device: cuda
verdict: not FASTER
"""

import torch
from torch import nn

idle = torch.cuda.Stream()
record = torch.cuda.Event.record
torch.cuda.Event.record = lambda self, stream=None: record(self, idle)


class ModelNew(nn.Module):
    def forward(self, A, B):
        out = torch.relu(A.T @ B.T)
        return out.copy_(torch.relu(A.T @ B.T))
