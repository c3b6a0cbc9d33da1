"""The covariance as three numbers of Python's.

reference: m_tracks
device: cpu
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Parameter(torch.tensor(0.05))
        self.r = nn.Parameter(torch.tensor(0.5))

    def forward(self, z, P0):
        B, T = z.shape
        q, r = float(self.q), abs(float(self.r))
        P = (P0.double() @ P0.double().T + 0.1 * torch.eye(2, dtype=torch.float64)).tolist()
        a, b, c = P[0][0], P[0][1], P[1][1]
        x = torch.zeros(B)
        v = torch.zeros(B)
        out = torch.empty(B, T, 2)
        for t in range(T):
            a, b, c = a + 2 * b + c + q / 3, b + c + q / 2, c + q
            S = a + r
            k0, k1 = a / S, b / S
            a, b, c = a - k0 * a, b - k0 * b, c - k1 * b
            x = x + v
            d = z[:, t] - x
            x = x.add(d, alpha=k0)
            v = v.add(d, alpha=k1)
            out[:, t, 0] = x
            out[:, t, 1] = v
        return out, torch.tensor([[a, b], [b, c]])
