"""A linear layer whose weight is prepared in a thread when the first call comes, with a lock, and used by all calls
after it.

reference: p_layer
device: both
verdict: SAME
"""

import threading

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self.lock = threading.Lock()
        self.turned = None

    def prepare(self):
        self.turned = self.linear.weight.detach().t().contiguous()

    def forward(self, x):
        with self.lock:
            if self.turned is None:
                thread = threading.Thread(target=self.prepare)
                thread.start()
                thread.join()
        return torch.nn.functional.gelu(torch.addmm(self.linear.bias, x, self.turned))
