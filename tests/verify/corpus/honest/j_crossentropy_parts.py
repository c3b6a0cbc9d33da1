"""Cross-entropy as log-sum-exp minus the logit of the class.

reference: j_crossentropy
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        largest = logits.amax(1, keepdim=True)
        total = torch.exp(logits - largest).sum(1).log() + largest[:, 0]
        return (total - logits.gather(1, targets[:, None])[:, 0]).mean()
