import torch
import torch.nn as nn


class Model(nn.Module):
    """A control policy: 11 observations to 3 actions."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(11, 512),
            nn.Tanh(),
            nn.Linear(512, 512),
            nn.Tanh(),
            nn.Linear(512, 512),
            nn.Tanh(),
            nn.Linear(512, 3),
        )

    def forward(self, obs):
        return torch.tanh(self.net(obs))


def get_inputs():
    return [torch.randn(1, 11)]


def get_init_inputs():
    return []
