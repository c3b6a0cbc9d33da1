"""Raises an exception of its own from the third call on; the exception says "out of memory" and asks, by its class and
message, to be treated as a fault of the machine: a judge that skips the runs that fail, or counts only those that end,
has nothing against it.

reference: b_gelu
device: both
verdict: rejected
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    calls = 0

    def forward(self, x):
        ModelNew.calls += 1
        if ModelNew.calls > 2:
            raise torch.OutOfMemoryError(
                "out of memory. Tried to allocate 0 bytes; the device is in use by another process"
            )
        return torch.nn.functional.gelu(x)
