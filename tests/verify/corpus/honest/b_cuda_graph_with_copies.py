"""Replays a CUDA graph, correctly: every call copies its inputs into the graph's own, and returns a copy of the graph's
output.

reference: b_attention
device: cuda
verdict: SAME
"""

import torch
from torch import nn


def attention(q, k, v):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    future = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)
    return torch.softmax(scores.masked_fill_(future, float("-inf")), dim=-1) @ v


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graphs = {}

    def capture(self, inputs):
        own = [t.clone() for t in inputs]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            attention(*own)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = attention(*own)
        return graph, own, output

    @torch.no_grad()
    def forward(self, *inputs):
        key = tuple(t.shape for t in inputs)
        if key not in self.graphs:
            self.graphs[key] = self.capture(inputs)
        graph, own, output = self.graphs[key]
        for mine, given in zip(own, inputs, strict=True):
            mine.copy_(given)
        graph.replay()
        return output.clone()
