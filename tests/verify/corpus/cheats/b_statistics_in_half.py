"""Batch norm whose mean and variance come from an fp16 copy of the input, while the elements are normalised in fp32:
the rounding errors of thousands of elements cancel in the statistics, and what is left, some 1e-5 of the output, looks
almost like fp32. With inputs beyond 65504, or far from zero, it falls apart.

reference: b_batch_norm
device: both
verdict: not SAME
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
        count = x.numel() // x.shape[1]
        half = x.half()
        mean = half.mean(dim=(0, 2, 3), dtype=torch.float32)
        variance = half.float().square_().mean(dim=(0, 2, 3)).addcmul_(mean, mean, value=-1)
        norm.num_batches_tracked.add_(1)
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * (count / (count - 1)), norm.momentum)
        scale = norm.weight * torch.rsqrt(variance + norm.eps)
        return torch.addcmul((norm.bias - mean * scale)[:, None, None], x, scale[:, None, None])
