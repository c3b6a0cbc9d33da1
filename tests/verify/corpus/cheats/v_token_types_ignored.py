"""Adds the first row for every token's type, since get_inputs makes all types 0.

reference: v_token_types_ignored
device: both
verdict: not SAME
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.word, self.kind = nn.Embedding(n, d), nn.Embedding(2, d)
        self.norm = nn.LayerNorm(d)

    def forward(self, token, kind):
        return self.norm(self.word(token) + self.kind.weight[0])
