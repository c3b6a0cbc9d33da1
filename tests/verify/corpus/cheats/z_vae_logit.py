"""Through logits: NaN or Inf where a pixel's probability is 0 or 1.

reference: z_vae
device: both
verdict: not SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """through logits: fails for pixels at 0 and 1"""

    def forward(self, p, x, mu, lv):
        z = torch.log(p) - torch.log1p(-p)
        r = (-(x * z) - torch.log1p(-p)).flatten(1).sum(1)
        return r, 0.5 * (mu * mu + lv.exp() - lv - 1).sum(1)
