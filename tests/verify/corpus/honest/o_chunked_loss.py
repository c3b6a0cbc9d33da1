"""The loss in chunks that stay in the cache, their sums compensated (Neumaier) at the end.

reference: o_mse_loss
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, predicted, wanted):
        total = torch.zeros((), device=predicted.device)
        lost = torch.zeros((), device=predicted.device)
        for p, w in zip(predicted.split(64), wanted.split(64), strict=True):
            d = (p - w).flatten()
            part = torch.dot(d, d)
            new = total + part
            lost += torch.where(total.abs() >= part.abs(), (total - new) + part, (part - new) + total)
            total = new
        return (total + torch.where(total.isfinite(), lost, torch.zeros_like(lost))) / predicted.numel()
