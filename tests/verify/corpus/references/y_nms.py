import torch
from torch import nn

N = 48


class Model(nn.Module):
    """Greedy non-maximum suppression: boxes (N, 4) as x1 y1 x2 y2, scores (N,) -> keep mask (N,)."""

    def forward(self, boxes, scores):
        order = scores.argsort(descending=True)
        b = boxes[order]
        area = (b[:, 2] - b[:, 0]).clamp(min=0) * (b[:, 3] - b[:, 1]).clamp(min=0)
        lt = torch.maximum(b[:, None, :2], b[None, :, :2])
        rb = torch.minimum(b[:, None, 2:], b[None, :, 2:])
        wh = (rb - lt).clamp(min=0)
        inter = wh[..., 0] * wh[..., 1]
        iou = inter / (area[:, None] + area[None, :] - inter)
        over = iou > 0.7
        keep = torch.ones(len(b), dtype=torch.bool, device=b.device)
        later = torch.arange(len(b), device=b.device)
        for i in range(len(b)):
            keep = keep & ~(over[i] & keep[i] & (later > i))
        out = torch.zeros_like(keep)
        out[order] = keep
        return out


def get_inputs():
    c = torch.rand(N, 2) * 800
    s = torch.rand(N, 2) * 30 + 30
    return [torch.cat([c - s / 2, c + s / 2], 1), torch.rand(N)]


def get_init_inputs():
    return []
