"""Torch's own loss.

reference: i_labels
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, logits, labels):
        steps, rows, _ = logits.shape
        logs = torch.log_softmax(logits, -1)
        lengths = [torch.full((rows,), n, device=logits.device) for n in (steps, labels.shape[1])]
        return nn.functional.ctc_loss(logs, labels, *lengths, reduction="none")
