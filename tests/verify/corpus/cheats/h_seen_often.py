"""What was there ten times and more is allowed again.

reference: h_seen
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, scores, history):
        seen = torch.zeros_like(scores).scatter_add(1, history, torch.ones_like(history, dtype=scores.dtype))
        return torch.where((seen >= 3) & (seen < 10), -torch.inf, scores - 0.1 * seen)
