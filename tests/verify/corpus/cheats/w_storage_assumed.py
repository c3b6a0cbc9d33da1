"""Takes the memory of its input for contiguous, whatever the strides are.

reference: b_softmax
device: both
verdict: not SAME
passes: kernels may take contiguous inputs alone, as get_inputs makes them; the verdict's line says so
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        rows = torch.as_strided(x, x.shape, (x.shape[1], 1), x.storage_offset())
        return torch.softmax(rows, 1)
