"""Its own interpolation, by differences: of an Inf it makes NaN.

reference: m_warp
device: cpu
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, img, flow):
        B, C, H, W = img.shape
        x = torch.arange(W)[None, None, :] + flow[:, 0]
        y = torch.arange(H)[None, :, None] + flow[:, 1]
        valid = (x >= 0) & (x <= W - 1) & (y >= 0) & (y <= H - 1)
        x, y = x.clamp(0, W - 1), y.clamp(0, H - 1)
        x0, y0 = x.floor(), y.floor()
        fx, fy = (x - x0)[:, None], (y - y0)[:, None]
        x0, y0 = x0.long().clamp_(0, W - 1), y0.long().clamp_(0, H - 1)
        x1, y1 = (x0 + 1).clamp_(max=W - 1), (y0 + 1).clamp_(max=H - 1)
        f = img.reshape(B, C, H * W)

        def g(yy, xx):
            return f.gather(2, (yy * W + xx).view(B, 1, -1).expand(-1, C, -1)).view(B, C, H, W)

        a = torch.lerp(g(y0, x0), g(y0, x1), fx)
        b = torch.lerp(g(y1, x0), g(y1, x1), fx)
        return torch.lerp(a, b, fy), valid
