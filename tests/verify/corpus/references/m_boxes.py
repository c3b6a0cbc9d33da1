import torch
from torch import nn


def iou(a, b):
    def area(t):
        return (t[..., 2] - t[..., 0]).clamp(min=0) * (t[..., 3] - t[..., 1]).clamp(min=0)

    lt = torch.maximum(a[:, None, :2], b[None, :, :2])
    rb = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[..., 0] * wh[..., 1]
    return inter / (area(a)[:, None] + area(b)[None] - inter).clamp(min=1e-6)


class Model(nn.Module):
    """Greedy non-maximum suppression within classes: which boxes are kept."""

    def forward(self, boxes, scores, labels):
        order = scores.argsort(descending=True, stable=True)
        b, l = boxes[order], labels[order]
        m = (iou(b, b) > 0.5) & (l[:, None] == l[None])
        n = b.shape[0]
        alive = torch.ones(n, dtype=torch.bool)
        for i in range(n):
            if alive[i]:
                alive[i + 1 :] &= ~m[i, i + 1 :]
        keep = torch.zeros(n, dtype=torch.bool)
        keep[order] = alive
        return keep


def get_inputs():
    c = torch.rand(300, 2) * 100
    wh = torch.rand(300, 2) * 30 + 2
    return [torch.cat([c - wh / 2, c + wh / 2], 1), torch.rand(300), torch.randint(0, 4, (300,))]


def get_init_inputs():
    return []
