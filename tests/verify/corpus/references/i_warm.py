import torch
import torch.nn as nn

WARM = 4000


class Model(nn.Module):
    """A step of gradient descent at a rate that rises for WARM steps, then is a third, and a tenth of that each 30000 later."""

    def forward(self, p, g, step):
        rising = (step + 1).to(p.dtype) / WARM
        falling = 0.1 ** ((step - WARM) // 30000).to(p.dtype) / 3
        return p - 0.02 * torch.where(step <= WARM, rising, falling) * g


def get_inputs():
    return [torch.randn(256, 256), torch.randn(256, 256), torch.randint(0, 1000000, (1,))]


def get_init_inputs():
    return []
