"""What depends on the state alone is computed once for a state.

reference: e_state_memo
device: cpu
verdict: not FASTER
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """Of a memory that is just as before. In use it changes at each call, and nothing is ever saved."""

    def __init__(self):
        super().__init__()
        self.register_buffer("memory", torch.randn(768, 768) / 28)
        self.kept = None

    def forward(self, x):
        if self.kept is None or not torch.equal(self.kept[0], self.memory):
            self.kept = self.memory.clone(), torch.tanh(self.memory @ self.memory.T)
        out = x @ self.kept[1]
        self.memory.mul_(0.9).add_(x.T @ torch.tanh(out), alpha=0.1 / len(x))
        return out
