"""Computes half of the rows on another stream, and joins both before it returns.

reference: t_product
device: cuda
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.stream = torch.cuda.Stream()

    def forward(self, A, B):
        out = torch.empty(A.shape[1], B.shape[0], device=A.device)
        half = out.shape[0] // 2
        current = torch.cuda.current_stream()
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            torch.mm(A.T[:half], B.T, out=out[:half])
        torch.mm(A.T[half:], B.T, out=out[half:])
        current.wait_stream(self.stream)
        out.record_stream(self.stream)
        return out.relu_()
