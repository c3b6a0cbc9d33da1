"""CUDA graph captured once; inputs are copied into its buffers at every call, the result out of them.

reference: c_product_tn
device: cuda
verdict: SAME
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
            self.a, self.b = A.clone(), B.clone()
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):
                    torch.matmul(self.a.T, self.b)
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.c = torch.matmul(self.a.T, self.b)
        self.a.copy_(A)
        self.b.copy_(B)
        self.graph.replay()
        return self.c.clone()
