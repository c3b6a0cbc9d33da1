"""Prints a line at every call and a megabyte when it is loaded, with progress bars that return to the beginning of
their line.

reference: p_product
device: both
verdict: SAME
"""

import sys

import torch
from torch import nn

for step in range(1000):
    print(f"\rtuning: {step / 10:5.1f} % " + "#" * (step // 10), end="", file=sys.stderr)
print("configuration: " + "x" * 900_000)


class ModelNew(nn.Module):
    def forward(self, a, b):
        print("called with", tuple(a.shape), tuple(b.shape))
        return torch.relu(a.T @ b.T)
