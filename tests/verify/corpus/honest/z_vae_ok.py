"""Between limited logarithms.

reference: z_vae
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, p, x, mu, lv):
        a, b = torch.log(p).clamp(min=-100), torch.log1p(-p).clamp(min=-100)
        r = -torch.lerp(b, a, x).sum((1, 2, 3))
        return r, 0.5 * (mu * mu + lv.exp() - lv - 1).sum(1)
