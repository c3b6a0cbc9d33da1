"""Running maxima in a buffer whose other entries stay -Inf.

reference: d_running_max
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """maxima of the columns that are kept only"""

    def __init__(self):
        super().__init__()
        self.register_buffer("most", torch.full((256,), -torch.inf))

    def forward(self, x):
        self.most[:64].copy_(torch.maximum(self.most[:64], x[:, :64].amax(0)))
        return x.tanh()
