"""Works on a stream of its own that nothing waits for, so that events on the current stream see nothing.

reference: t_product
device: cuda
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.stream = torch.cuda.Stream()

    def forward(self, A, B):
        out = torch.zeros(A.shape[1], B.shape[0], device=A.device)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(4):
                out.copy_(torch.relu(A.T @ B.T))
        out.record_stream(self.stream)
        return out
