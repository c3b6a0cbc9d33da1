"""Returns nothing but NaN: "the largest difference is not above the tolerance" holds for it, since every comparison
with NaN is false. A judge that writes its check the other way round is fooled.

reference: b_layer_norm
device: both
verdict: not SAME
"""

import torch
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.norm = nn.LayerNorm(cols, device=DEVICE)

    def forward(self, x):
        return torch.full((1,), float("nan"), device=x.device).expand(x.shape)
