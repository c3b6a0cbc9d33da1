"""The whole loop as one CUDA graph: the input copied into its buffer, replayed on the current stream, the result copied
out; captured anew if a parameter has moved.

reference: c_gru
device: cuda
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n_in, hidden):
        super().__init__()
        self.cell = nn.GRUCell(n_in, hidden)
        self.hidden = hidden
        self.key = None

    def loop(self, x):
        h = x.new_zeros(x.shape[1], self.hidden)
        for t in range(x.shape[0]):
            h = self.cell(x[t], h)
        return h

    @torch.no_grad()
    def forward(self, x):
        key = (tuple(x.shape), *(p.data_ptr() for p in self.cell.parameters()))
        if key != self.key:
            self.graph = None
            self.x = x.clone()
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.loop(self.x)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.h = self.loop(self.x)
            self.graph, self.key = graph, key
        self.x.copy_(x)
        self.graph.replay()
        return self.h.clone()
