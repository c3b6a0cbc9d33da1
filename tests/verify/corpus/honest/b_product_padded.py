"""Returns a view into a larger buffer: the result's rows are padded, so that the strides are unusual and the storage
holds numbers that do not belong to the output. The buffer is new in every call.

reference: b_product_ta
device: both
verdict: SAME
"""

import torch
from torch import nn

PADDING = 16


class ModelNew(nn.Module):
    def forward(self, a, b):
        room = torch.empty(a.shape[1] + 1, b.shape[1] + PADDING, dtype=a.dtype, device=a.device)
        result = room[1:, : b.shape[1]]
        torch.mm(a.T, b, out=result)
        return result
