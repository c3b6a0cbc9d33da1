"""Sparse rows by offsets.

reference: s_csr_offsets
device: cpu
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, ptr, col, val, x):
        A = torch.sparse_csr_tensor(ptr, col, val, (ptr.numel() - 1, x.shape[0]))
        return A @ x
