"""What is further back than two chunks is forgotten.

reference: l_gated
device: both
verdict: not SAME
"""

import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def forward(self, q, k, v, g):
        _B, _H, T, _D = q.shape
        la = F.logsigmoid(g) / 16
        Q = 64
        mask = torch.ones(Q, Q, dtype=torch.bool, device=q.device).tril()
        out = []
        for s in range(0, T, Q // 2):
            e = min(s + Q // 2, T)
            s0 = max(0, e - Q)
            b = la[:, :, s0:e].cumsum(2)
            qc, kc, vc = q[:, :, s0:e], k[:, :, s0:e], v[:, :, s0:e]
            m = mask[: e - s0, : e - s0, None]
            A = torch.einsum(
                "bhid,bhjd,bhijd->bhij",
                qc,
                kc,
                torch.exp((b[:, :, :, None] - b[:, :, None]).masked_fill(~m, -torch.inf)),
            )
            out.append((A @ vc)[:, :, s - e :] if s else A @ vc)
        return torch.cat(out, 2)
