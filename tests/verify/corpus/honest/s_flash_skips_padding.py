"""Attention that does not read what is padding.

reference: s_flash_skips_padding
device: cpu
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    # keys behind the length are not read
    def forward(self, q, k, v, lengths):
        out = []
        for i, n in enumerate(lengths.tolist()):
            s = q[i] @ k[i, :n].t() / q.shape[-1] ** 0.5
            out.append(torch.softmax(s, -1) @ v[i, :n])
        return torch.stack(out)
