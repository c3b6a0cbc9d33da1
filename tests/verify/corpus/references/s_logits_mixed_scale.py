import torch
import torch.nn as nn


class Model(nn.Module):
    """physics features in one tensor: energy (1e6), momentum (1e3), angle (1), probability (1e-3)"""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 4)

    def forward(self, x):
        y = self.fc(x)
        scale = torch.tensor([1e6, 1e3, 1.0, 1e-3], dtype=x.dtype)
        return torch.tanh(y) * scale


def get_inputs():
    return [torch.randn(512, 64)]


def get_init_inputs():
    return []
