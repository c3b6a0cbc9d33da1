"""Scores of 11 bits in 81 columns, beside four columns of pixels that are thousands of times as large.

reference: v_scores_of_11_bits
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        scores = torch.sigmoid(x[..., 4:])
        scores = ((scores.view(torch.int32) + 4096) & -8192).view(torch.float32)
        return torch.cat((torch.exp(x[..., :4]) * 512, scores), -1)
