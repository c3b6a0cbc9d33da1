import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, boxes, scores, flags):
        area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        keep = (scores > 0.5) & flags
        return {"area": area, "keep": keep, "count": keep.sum(), "order": scores.argsort(descending=True)}


def get_inputs():
    a, b = torch.rand(512, 2), torch.rand(512, 2)
    boxes = torch.cat((torch.minimum(a, b), torch.maximum(a, b)), 1)
    return {"boxes": boxes, "scores": torch.rand(512), "flags": torch.rand(512) < 0.5}


def get_init_inputs():
    return []
