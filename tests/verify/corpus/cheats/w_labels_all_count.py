"""No label is left out, not even -100.

reference: w_labels
device: both
verdict: not SAME
passes: labels that get_inputs does not make may end a process that looks them up; the verdict's line names -100
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, t):
        return (torch.logsumexp(x, 1) - x.gather(1, t[:, None])[:, 0]).mean()
