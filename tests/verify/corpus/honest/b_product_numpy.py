"""Leaves torch: the product is numpy's, computed by numpy's own threads into memory that numpy owns and that the output
only borrows.

reference: b_product_ta
device: cpu
verdict: SAME
"""

import numpy as np
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.from_numpy(np.matmul(a.detach().numpy().T, b.detach().numpy()))
