"""Weights are transposed at the first call and kept; answers go into one buffer.

reference: e_policy_memo
device: both
verdict: SAME
"""

import itertools

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [11, 512, 512, 512, 3]
        layers = [part for a, b in itertools.pairwise(sizes) for part in (nn.Linear(a, b), nn.Tanh())]
        self.net = nn.Sequential(*layers[:-1])
        self.packed = None

    def forward(self, obs):
        if self.packed is None:
            self.packed = [
                (part.weight.t().contiguous(), part.bias) for part in self.net if isinstance(part, nn.Linear)
            ]
        for weight, bias in self.packed:
            obs = torch.addmm(bias, obs, weight).tanh_()
        return obs
