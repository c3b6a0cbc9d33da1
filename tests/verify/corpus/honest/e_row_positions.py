"""What is known by the shape alone, the steps of a sentence, is kept by it.

reference: e_row_memo
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(2000, 64)
        self.gru = nn.GRU(64, 64, batch_first=True)
        self.steps = {}

    def forward(self, ids, lengths):
        if ids.shape[1] not in self.steps:
            self.steps[ids.shape[1]] = torch.arange(ids.shape[1], device=ids.device)[None]
        h, _ = self.gru(self.emb(ids))
        keep = (self.steps[ids.shape[1]] < lengths[:, None]).float()
        return torch.bmm(keep[:, None], h)[:, 0] / lengths[:, None].float()
