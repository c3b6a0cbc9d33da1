import torch
import torch.nn as nn


class Model(nn.Module):
    """sensor panel with missing values (NaN): mean, median and last valid of each row; none valid: 0"""

    def forward(self, x):
        ok = ~torch.isnan(x)
        v = torch.nan_to_num(x, nan=0.0, posinf=float("inf"), neginf=-float("inf"))
        n = ok.sum(1)
        m = torch.where(ok, v, torch.zeros_like(v)).sum(1) / n.clamp(min=1)
        i = torch.where(ok, torch.arange(x.shape[1], device=x.device), -1).amax(1)
        last = torch.where(i >= 0, v.gather(1, i.clamp(min=0)[:, None])[:, 0], torch.zeros_like(m))
        return m, last


def get_inputs():
    x = torch.randn(512, 64)
    x[torch.rand(512, 64) < 0.2] = float("nan")
    return [x]
