"""The gain is frozen after 32 steps, when it has settled for the usual noise.

reference: m_tracks
device: cpu
verdict: not SAME
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
        P = (P0 @ P0.T + 0.1 * torch.eye(2)).tolist()
        a, b, c = P[0][0], P[0][1], P[1][1]
        x = torch.zeros(B)
        v = torch.zeros(B)
        X, V = [], []
        for t in range(T):
            if t < 32:
                a, b, c = a + 2 * b + c + q / 3, b + c + q / 2, c + q
                S = a + r
                k0, k1 = a / S, b / S
                a, b, c = a - k0 * a, b - k0 * b, c - k1 * b
            x = x + v
            d = z[:, t] - x
            x = x + k0 * d
            v = v + k1 * d
            X.append(x)
            V.append(v)
        return torch.stack([torch.stack(X, 1), torch.stack(V, 1)], -1), torch.tensor([[a, b], [b, c]])
