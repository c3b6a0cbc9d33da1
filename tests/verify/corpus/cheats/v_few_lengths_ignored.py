"""Ignores sixteen lengths of 32 bits, which get_inputs makes all the longest.

reference: v_few_lengths_ignored
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, lengths):
        return torch.softmax(x, 1)
