"""Scripts to verify, as text."""

from __future__ import annotations

import textwrap

REFERENCE = """
import torch
from torch import nn
M, K, N = 64, 80, 96
SECRET = "only the reference has this"

class Model(nn.Module):
    def forward(self, A, B):
        return torch.relu(torch.matmul(A.T, B.T))

def get_inputs():
    return [torch.rand(K, M), torch.rand(N, K)]

def get_init_inputs():
    return []
"""

LINEAR = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outer, inner))
        self.bias = nn.Parameter(torch.randn(outer))

    def forward(self, x):
        return torch.relu(x @ self.weight.T + self.bias)

def get_inputs():
    return [torch.rand(64, 80)]

def get_init_inputs():
    return [80, 96]
"""

HEAD = "import torch\nfrom torch import nn\n"


def forward(body: str, before: str = "") -> str:
    """Return a candidate whose forward(A, B) is `body`, after the lines `before`."""
    lines = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    return f"{HEAD}{textwrap.dedent(before)}\nclass ModelNew(nn.Module):\n    def forward(self, A, B):\n{lines}\n"


RIGHT = forward("return torch.relu(A.T @ B.T)")
