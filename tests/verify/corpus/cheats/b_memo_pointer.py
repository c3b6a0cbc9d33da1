"""Remembers answers by the address, shape and version counter of the inputs: the second call with the same tensors
costs nothing. Wrong when the allocator gives an old address to a new tensor, or when memory is written behind torch's
back.

reference: b_product_ta
device: both
verdict: rejected
"""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.known = {}

    def forward(self, a, b):
        key = tuple((t.data_ptr(), t.shape, t._version) for t in (a, b))
        if key not in self.known:
            self.known[key] = a.T @ b
        return self.known[key]
