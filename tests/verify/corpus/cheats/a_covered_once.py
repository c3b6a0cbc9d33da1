"""Takes the first row for what is seen of all.

reference: a_covered
device: both
verdict: not SAME
passes: rows that are all the same stay so; the line names them
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, seen):
        return x[:, seen[0]].mean(1, keepdim=True) - x
