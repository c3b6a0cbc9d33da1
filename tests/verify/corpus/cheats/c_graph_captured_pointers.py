"""CUDA graph captured on the first call's own tensors, replayed for ever after.
Wrong as soon as a call's inputs lie at another address than the first call's: model(x1), then model(x2) with
another tensor gives the product of what is in x1's memory. Nothing checks the address.

reference: c_product_tn
device: cuda
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = None

    @torch.no_grad()
    def forward(self, A, B):
        if self.graph is None:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):
                    torch.matmul(A.T, B)
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.c = torch.matmul(A.T, B)
        self.graph.replay()
        return self.c.clone()
