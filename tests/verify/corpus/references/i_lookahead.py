import torch
import torch.nn as nn


class Model(nn.Module):
    """A step with momentum; every so often slow weights follow, and the fast ones start from them."""

    def __init__(self, every):
        super().__init__()
        self.every = every

    def forward(self, p, g, m, slow, step):
        m = 0.9 * m + g
        p = p - 0.01 * m
        if int(step) % self.every == 0:
            slow = slow + 0.5 * (p - slow)
            p = slow
        return p, m, slow


def get_inputs():
    return [*(torch.randn(256, 128) for _ in range(4)), torch.randint(1, 100000, ())]


def get_init_inputs():
    return [640]
