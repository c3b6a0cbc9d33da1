import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(1000, 128)
        self.key = nn.Linear(128, 128)
        self.query = nn.Linear(128, 128)

    def forward(self, x, prompt):
        memory = torch.tanh(self.key(self.table(prompt)))
        return (self.query(x) @ memory.T).softmax(-1) @ memory


def get_inputs():
    return [torch.randn(64, 128), torch.arange(600) * 7 % 1000]


def get_init_inputs():
    return []
