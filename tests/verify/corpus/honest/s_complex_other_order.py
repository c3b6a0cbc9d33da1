"""A complex product in another order.

reference: s_complex_other_order
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    # one real product of twice the size, in four parts
    def forward(self, z, w):
        a = torch.cat([z.real, z.imag], 1)
        b = torch.cat([torch.cat([w.real, w.imag], 1), torch.cat([-w.imag, w.real], 1)], 0)
        y = sum(a[:, i : i + 128] @ b[i : i + 128] for i in range(0, 512, 128))
        return torch.complex(y[:, :64].contiguous(), y[:, 64:].contiguous())
