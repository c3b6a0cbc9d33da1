"""A linear layer whose weight is prepared in a thread, with a lock, when the first call comes or the weight has
changed.

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
        self.key = None

    def prepare(self):
        self.turned = self.linear.weight.detach().t().contiguous()

    def forward(self, x):
        with self.lock:
            key = self.linear.weight.data_ptr(), self.linear.weight._version
            if key != self.key:
                self.key = key
                thread = threading.Thread(target=self.prepare)
                thread.start()
                thread.join()
        return torch.nn.functional.gelu(torch.addmm(self.linear.bias, x, self.turned))
