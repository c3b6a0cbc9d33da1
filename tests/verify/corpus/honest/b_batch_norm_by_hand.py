"""Batch norm written out, with the running statistics updated in place and the batches counted, as the module itself
does.

reference: b_batch_norm
device: both
verdict: SAME
"""

import torch
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, device=DEVICE)

    @torch.no_grad()
    def forward(self, x):
        norm = self.norm
        if self.training:
            count = x.numel() // x.shape[1]
            variance, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
            norm.num_batches_tracked.add_(1)
            norm.running_mean.lerp_(mean, norm.momentum)
            norm.running_var.lerp_(variance * (count / (count - 1)), norm.momentum)
        else:
            mean, variance = norm.running_mean, norm.running_var
        scale = norm.weight * torch.rsqrt(variance + norm.eps)
        shift = norm.bias - mean * scale
        return torch.addcmul(shift[:, None, None], x, scale[:, None, None])
