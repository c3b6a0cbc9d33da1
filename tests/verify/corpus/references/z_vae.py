import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """VAE loss per sample: binary cross-entropy of decoded pixels and KL of latents"""

    def forward(self, p, x, mu, lv):
        r = F.binary_cross_entropy(p, x, reduction="none").flatten(1).sum(1)
        k = -0.5 * (1 + lv - mu.square() - lv.exp()).sum(1)
        return r, k


def get_inputs():
    return [torch.rand(64, 1, 16, 16), torch.rand(64, 1, 16, 16), torch.randn(64, 16), torch.randn(64, 16)]
