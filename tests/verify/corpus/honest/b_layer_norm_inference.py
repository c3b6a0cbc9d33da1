"""Computes under inference mode and with the garbage collector switched off for the time of the call: its outputs are
inference tensors, which torch does not let everybody change.

reference: b_layer_norm
device: both
verdict: SAME
"""

import gc

import torch
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.norm = nn.LayerNorm(cols, device=DEVICE)

    def forward(self, x):
        was_on = gc.isenabled()
        gc.disable()
        try:
            with torch.inference_mode():
                return self.norm(x)
        finally:
            if was_on:
                gc.enable()
