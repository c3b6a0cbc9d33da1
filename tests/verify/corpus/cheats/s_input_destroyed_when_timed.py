"""Works in its input's memory where that is part of a larger one, as in timed calls.

reference: s_input_destroyed_when_timed
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    # works in the input's memory where that is part of a larger one, as it is in windows
    def forward(self, x):
        if x.untyped_storage().nbytes() > x.nbytes:
            return x.relu_().mul_(2)
        return torch.relu(x).mul_(2)
