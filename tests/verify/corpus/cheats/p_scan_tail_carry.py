"""Running sums in blocks of 256; what is carried into the last quarter of a row is rounded to 17 bits.

reference: o_cumsum
device: both
verdict: not SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        rows, n = x.shape
        inner = torch.cumsum(x.reshape(rows, n // 256, 256), 2)
        carry = torch.cumsum(inner[:, :, -1], 1)
        late = 3 * carry.shape[1] // 4
        coarse = (carry[:, late:].contiguous().view(torch.int32) + 64) & ~127
        carry[:, late:] = torch.where(carry[:, late:].isfinite(), coarse.view(torch.float32), carry[:, late:])
        inner[:, 1:] += carry[:, :-1, None]
        return inner.reshape(rows, n)
