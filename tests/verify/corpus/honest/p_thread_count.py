"""Sets torch's number of threads to one for its small products, which is often faster.

reference: p_product
device: both
verdict: SAME
"""

import torch
from torch import nn

torch.set_num_threads(1)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.relu(torch.mm(a.t(), b.t()))
