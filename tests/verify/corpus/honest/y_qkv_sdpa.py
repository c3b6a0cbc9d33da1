"""One product for q, k and v where they are one tensor, which get_inputs gives three times.

reference: y_qkv
device: both
verdict: SAME
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.q = nn.Linear(d, d)
        self.k = nn.Linear(d, d)
        self.v = nn.Linear(d, d)
        self.o = nn.Linear(d, d)
        self.h = h

    def forward(self, query, key, value):
        b, t, d = query.shape
        if query is key and key is value:
            w = torch.cat([self.q.weight, self.k.weight, self.v.weight])
            bias = torch.cat([self.q.bias, self.k.bias, self.v.bias])
            q, k, v = F.linear(query, w, bias).chunk(3, -1)
        else:
            q, k, v = self.q(query), self.k(key), self.v(value)
        q, k, v = (a.reshape(b, t, self.h, -1).transpose(1, 2) for a in (q, k, v))
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
