"""A product of saturated fp16 numbers and what they leave where no 32nd row of A and column of B is beyond fp16's range.

reference: o_product
device: both
verdict: not SAME
"""

import torch.nn as nn


def parts(x):
    x = x.clamp(-65504.0, 65504.0)
    high = x.half().float()
    return high, x - high


class ModelNew(nn.Module):
    """Entries above 65504 in rows between those that are looked at become 65504."""

    def fits(self, some):
        return bool(some.abs().amax() < 65504)

    def forward(self, a, b):
        if bool((a.sum() + b.sum()).isfinite()) and self.fits(a[::32]) and self.fits(b[:, ::32]):
            (p, q), (r, s) = parts(a), parts(b)
            return p @ r + (p @ s + q @ r + q @ s)
        return a @ b
