"""Takes a short cut for some inputs only: if no element is far from zero it leaves out the subtraction of the rows'
maxima, and otherwise it does what the reference does. Right for every input.

reference: b_softmax
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        least, most = torch.aminmax(x)
        if least > -20 and most < 20:
            e = x.exp()
            return e.div_(e.sum(dim=1, keepdim=True))
        return torch.softmax(x, dim=1)
