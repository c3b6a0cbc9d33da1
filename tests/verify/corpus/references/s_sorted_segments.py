import torch
import torch.nn as nn


class Model(nn.Module):
    """pooling of graphs in a batch: segment numbers are in order"""

    def forward(self, x, seg):
        s = torch.zeros(32, x.shape[1], dtype=x.dtype).index_add(0, seg, x)
        n = torch.zeros(32, dtype=x.dtype).index_add(0, seg, torch.ones_like(x[:, 0]))
        return s / n.clamp(min=1)[:, None]


def get_inputs():
    return [torch.randn(512, 32), torch.sort(torch.randint(0, 32, (512,)))[0]]


def get_init_inputs():
    return []
