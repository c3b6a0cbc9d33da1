"""Solves by the transpose of a rotation.

reference: s_orthogonal_input
device: both
verdict: SAME
"""

import torch.nn as nn


class ModelNew(nn.Module):
    # Q is a rotation: its inverse is its transpose
    def forward(self, x, Q):
        return Q.t() @ x
