import torch
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(128, 128)
        self.scale = torch.ones(128, device=DEVICE)
        self.norms = [(nn.LayerNorm(128, device=DEVICE),)]

    def forward(self, x):
        return torch.sigmoid(self.norms[0][0](self.linear(x)) * self.scale)


def get_inputs():
    return [torch.randn(128, 128)]


def get_init_inputs():
    return []
