"""Ragged bags of embeddings, then a layer norm."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    """Embedding bag of ragged bags (offsets), per-sample weights, padding index 0, then layer norm."""

    def __init__(self, n=20000, d=64):
        super().__init__()
        self.table = nn.Parameter(torch.randn(n, d))
        with torch.no_grad():
            self.table[0] = 0
        self.gain = nn.Parameter(torch.ones(d))

    def forward(self, ids, offsets, w):
        y = F.embedding_bag(ids, self.table, offsets, mode="sum", per_sample_weights=w, padding_idx=0)
        return F.layer_norm(y, y.shape[-1:], self.gain, None, 1e-5)


def get_inputs():
    ids = torch.randint(0, 20000, (32768,))
    cut = torch.randint(0, 32769, (1023,)).sort()[0]
    return [ids, torch.cat((torch.zeros(1, dtype=torch.long), cut)), torch.rand(32768)]
