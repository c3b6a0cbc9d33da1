"""Causal attention that skips the blocks above the diagonal.

reference: s_attention_blocks
device: cpu
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    # flash attention: online softmax over blocks of 32 keys, blocks above the diagonal skipped
    def forward(self, q, k, v):
        S = q.shape[-2]
        out = torch.empty_like(q)
        q = q * (q.shape[-1] ** -0.5)
        for i in range(0, S, 32):
            qi = q[..., i : i + 32, :]
            m = qi.new_full((*qi.shape[:-1], 1), -float("inf"))
            l = torch.zeros_like(m)
            acc = torch.zeros_like(qi)
            for j in range(0, i + 32, 32):
                s = qi @ k[..., j : j + 32, :].transpose(-1, -2)
                if i == j:
                    s = s.masked_fill(torch.ones(32, 32, dtype=torch.bool).triu(1), -float("inf"))
                n = torch.maximum(m, s.amax(-1, keepdim=True))
                p = torch.exp(s - n)
                c = torch.exp(m - n)
                l = l * c + p.sum(-1, keepdim=True)
                acc = acc * c + p @ v[..., j : j + 32, :]
                m = n
            out[..., i : i + 32, :] = acc / l
        return out
