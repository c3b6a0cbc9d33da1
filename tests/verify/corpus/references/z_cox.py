import torch
import torch.nn as nn


class Model(nn.Module):
    """Cox partial likelihood (Breslow); times in descending order, equal times share a risk set"""

    def forward(self, s, t, e):
        l = torch.logcumsumexp(s, 1)
        n = t.shape[1]
        last = (t[:, None, :] >= t[:, :, None]).sum(-1) - 1
        return ((s - l.gather(1, last)) * torch.sigmoid(e)).sum(1) / n


def get_inputs():
    return [torch.randn(64, 128), torch.rand(64, 128).sort(1, descending=True).values, torch.randn(64, 128)]
