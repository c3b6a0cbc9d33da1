"""Excludes what a history has three times or more."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, scores, history):
        seen = torch.zeros_like(scores).scatter_add(1, history, torch.ones_like(history, dtype=scores.dtype))
        return torch.where(seen >= 3, -torch.inf, scores - 0.1 * seen)


def get_inputs():
    return [torch.randn(16, 400), torch.randint(0, 400, (16, 32))]
