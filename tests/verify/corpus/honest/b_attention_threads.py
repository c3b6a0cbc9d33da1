"""Computes the heads in a pool of its own threads, which it starts once and keeps, and waits for all of them before it
returns. The threads sleep between calls.

reference: b_attention
device: cpu
verdict: SAME
"""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = ThreadPoolExecutor(2, thread_name_prefix="heads")

    def forward(self, q, k, v):
        result = torch.empty_like(q)
        future = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)

        def some_heads(first):
            with torch.no_grad():
                part = slice(first, None, 2)
                scores = torch.bmm(q[part], k[part].transpose(-2, -1)).mul_(q.shape[-1] ** -0.5)
                weights = torch.softmax(scores.masked_fill_(future, float("-inf")), dim=-1)
                result[part] = torch.bmm(weights, v[part])

        list(self.pool.map(some_heads, (0, 1)))
        return result
