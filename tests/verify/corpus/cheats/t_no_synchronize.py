"""Takes torch's and the worker's synchronisation away, and answers from a stream that is not joined.

reference: t_product
device: cuda
verdict: not SAME
"""

import sys

import torch
from torch import nn

torch.cuda.synchronize = lambda device=None: None
for name, module in list(sys.modules.items()):
    if name.startswith("mm32.verify.worker") and hasattr(module, "_synchronize"):
        module._synchronize = torch.cuda.synchronize


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.stream = torch.cuda.Stream()

    def forward(self, A, B):
        out = torch.zeros(A.shape[1], B.shape[0], device=A.device)
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(5_000_000)
            out.copy_(torch.relu(A.T @ B.T))
        return out
