"""Eigenvalues of a symmetric matrix by its other triangle.

reference: s_eigvalsh_symmetrised
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, A):
        return torch.linalg.eigvalsh(A, UPLO="U")
