"""Layer norm without its weight and bias: they are ones and zeros when the model is made, so that the output is right
until somebody changes them. The parameters are there, with the right names and shapes, and are not read.

reference: b_layer_norm
device: both
verdict: not SAME
"""

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.norm = nn.LayerNorm(cols, device=DEVICE)

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:])
