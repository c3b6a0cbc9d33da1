import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, k, d, decay=0.99, eps=1e-5):
        super().__init__()
        e = torch.randn(k, d)
        self.register_buffer("embedding", e)
        self.register_buffer("ema_count", torch.zeros(k))
        self.register_buffer("ema_weight", e.clone())
        self.decay, self.eps, self.k = decay, eps, k

    def forward(self, x):
        b, d, h, w = x.shape
        flat = x.permute(0, 2, 3, 1).reshape(-1, d)
        dist = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.embedding.t() + self.embedding.pow(2).sum(1)
        idx = dist.argmin(1)
        enc = F.one_hot(idx, self.k).type(flat.dtype)
        q = enc @ self.embedding
        if self.training:
            self.ema_count = self.decay * self.ema_count + (1 - self.decay) * enc.sum(0)
            n = self.ema_count.sum()
            self.ema_count = (self.ema_count + self.eps) / (n + self.k * self.eps) * n
            self.ema_weight = self.decay * self.ema_weight + (1 - self.decay) * (enc.t() @ flat)
            self.embedding = self.ema_weight / self.ema_count.unsqueeze(1)
        loss = 0.25 * F.mse_loss(q, flat)
        q = flat + (q - flat).detach()
        avg = enc.mean(0)
        perp = torch.exp(-(avg * (avg + 1e-10).log()).sum())
        return q.view(b, h, w, d).permute(0, 3, 1, 2), loss, idx.view(b, h, w), perp


def get_inputs():
    return [torch.randn(4, 16, 12, 12)]


def get_init_inputs():
    return [64, 16]
