"""The best of each beam, then the best of these.

reference: i_beams
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, end):
        super().__init__()
        self.end = end

    def forward(self, scores, logits, ended):
        count = logits.shape[1]
        logs = torch.log_softmax(logits, -1)
        stays = torch.full_like(logs[0, 0], float("-inf"))
        stays[self.end] = 0.0
        of_each, kinds = (scores[..., None] + torch.where(ended[..., None], stays, logs)).topk(count, -1)
        best, places = of_each.flatten(1).topk(count, -1)
        beam, kind = places // count, kinds.flatten(1).gather(1, places)
        return best, beam, kind, ended.gather(1, beam) | (kind == self.end)
