"""Mean squared error: one number, of many terms."""

import torch
from torch import nn

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


ROWS, COLUMNS = (4096, 8192) if CUDA else (128, 2048)


class Model(nn.Module):
    def forward(self, predictions, targets):
        return torch.mean((predictions - targets) ** 2)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS, device=DEVICE), torch.rand(ROWS, COLUMNS, device=DEVICE)]
