"""Two Python threads each compute half of the rows into one new output, and are joined before it is returned.

reference: o_product
device: both
verdict: SAME
"""

import threading

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, A, B):
        out = torch.empty(A.shape[0], B.shape[1], dtype=A.dtype, device=A.device)
        half = A.shape[0] // 2

        def part(rows):
            with torch.no_grad():
                torch.mm(A[rows], B, out=out[rows])

        other = threading.Thread(target=part, args=(slice(0, half),))
        other.start()
        part(slice(half, None))
        other.join()
        return out
