"""The loss of the first call, for ever.

reference: j_crossentropy
device: both
verdict: not SAME
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        if not hasattr(self, "loss"):
            self.loss = F.cross_entropy(logits, targets)
        return self.loss.clone()
