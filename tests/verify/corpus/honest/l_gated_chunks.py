"""In chunks of 16: exponentials of differences of running sums within, a state between.

reference: l_gated
device: both
verdict: SAME
"""

import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def forward(self, q, k, v, g):
        B, H, T, D = q.shape
        la = F.logsigmoid(g) / 16
        Q = 16
        mask = torch.ones(Q, Q, dtype=torch.bool, device=q.device).tril()
        S = torch.zeros(B, H, D, v.shape[-1], dtype=q.dtype, device=q.device)
        out = []
        for s in range(0, T, Q):
            b = la[:, :, s : s + Q].cumsum(2)
            qc, kc, vc = q[:, :, s : s + Q], k[:, :, s : s + Q], v[:, :, s : s + Q]
            A = torch.einsum(
                "bhid,bhjd,bhijd->bhij",
                qc,
                kc,
                torch.exp((b[:, :, :, None] - b[:, :, None]).masked_fill(~mask[..., None], -torch.inf)),
            )
            out.append(A @ vc + (qc * b.exp()) @ S)
            S = b[:, :, -1, :, None].exp() * S + (kc * (b[:, :, -1:] - b).exp()).transpose(-1, -2) @ vc
        return torch.cat(out, 2)
