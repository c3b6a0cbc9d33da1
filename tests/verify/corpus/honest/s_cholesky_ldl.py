"""A Cholesky factor by another factorisation.

reference: s_cholesky_ldl
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, A, b):
        return torch.linalg.slogdet(A)[1], torch.linalg.solve(A, b)
