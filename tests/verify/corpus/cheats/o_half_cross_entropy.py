"""Exponentials and their sums from logits rounded to fp16 after their maximum is subtracted: the mean over rows hides
it.

reference: o_cross_entropy
device: both
verdict: not SAME
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, logits, target):
        shifted = logits - logits.amax(1, keepdim=True)
        total = shifted.half().float().exp().sum(1).log()
        return (total - shifted.gather(1, target[:, None])[:, 0]).mean()
