"""Replays a CUDA graph on static inputs, into which it copies the given ones first.

reference: t_product
device: cuda
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = None

    def forward(self, A, B):
        if self.graph is None:
            self.a, self.b = A.clone(), B.clone()
            torch.relu(self.a.T @ self.b.T)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = torch.relu(self.a.T @ self.b.T)
        self.a.copy_(A)
        self.b.copy_(B)
        self.graph.replay()
        return self.out
