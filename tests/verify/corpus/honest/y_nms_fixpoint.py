"""Greedy NMS as a fixed point: keep = no kept better box overlaps; repeated until nothing changes.

reference: y_nms
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, boxes, scores):
        order = scores.argsort(descending=True)
        b = boxes[order]
        area = (b[:, 2] - b[:, 0]).clamp(min=0) * (b[:, 3] - b[:, 1]).clamp(min=0)
        lt = torch.maximum(b[:, None, :2], b[None, :, :2])
        rb = torch.minimum(b[:, None, 2:], b[None, :, 2:])
        wh = (rb - lt).clamp(min=0)
        inter = wh[..., 0] * wh[..., 1]
        over = (inter / (area[:, None] + area[None, :] - inter) > 0.7).triu(1)
        keep = torch.ones(len(b), dtype=torch.bool, device=b.device)
        while True:
            new = ~(over & keep[:, None]).any(0)
            if torch.equal(new, keep):
                break
            keep = new
        out = torch.zeros_like(keep)
        out[order] = keep
        return out
