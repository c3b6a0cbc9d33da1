"""A label that repeats may be skipped.

reference: i_labels
device: both
verdict: not SAME
"""

import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def forward(self, logits, labels):
        logs = torch.log_softmax(logits, -1)
        steps, rows, _ = logs.shape
        width = 2 * labels.shape[1] + 1
        states = torch.zeros(rows, width, dtype=torch.int64, device=logits.device)
        states[:, 1::2] = labels
        said = logs.gather(2, states.expand(steps, -1, -1))
        skips = torch.arange(width, device=logits.device) % 2 * (torch.arange(width, device=logits.device) > 1) == 1
        never = float("-inf")
        at = torch.full_like(said[0], never)
        at[:, :2] = said[0, :, :2]
        for t in range(1, steps):
            two = F.pad(at[:, :-2], (2, 0), value=never).masked_fill(~skips, never)
            at = torch.stack([at, F.pad(at[:, :-1], (1, 0), value=never), two]).logsumexp(0) + said[t]
        return -torch.logaddexp(at[:, -1], at[:, -2])
