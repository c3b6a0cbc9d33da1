import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(1000, 128)
        self.a = nn.Linear(128, 512)
        self.b = nn.Linear(512, 64)

    def forward(self, idx):
        return self.b(F.gelu(self.a(self.emb(idx).mean(1))))


def get_inputs():
    return [torch.randint(0, 1000, (512, 32))]


def get_init_inputs():
    return []
