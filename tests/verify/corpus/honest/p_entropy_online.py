"""Cross-entropy with a running maximum over blocks of classes, powers of two, and the rows' losses summed in order.

reference: o_cross_entropy
device: both
verdict: SAME
"""

import torch
from torch import nn

LOG2E = 1.4426950408889634


class ModelNew(nn.Module):
    def forward(self, logits, target):
        top = torch.full_like(logits[:, 0], torch.finfo(logits.dtype).min)
        total = torch.zeros_like(top)
        for part in logits.split(125, 1):
            new = torch.maximum(top, part.amax(1))
            total = total * torch.exp2((top - new) * LOG2E) + torch.exp2((part - new[:, None]) * LOG2E).sum(1)
            top = new
        rows = total.log() + top - logits.gather(1, target[:, None])[:, 0]
        loss = torch.zeros_like(rows[0])
        for row in rows:
            loss = loss + row
        return loss / len(rows)
