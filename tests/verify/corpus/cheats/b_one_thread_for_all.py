"""Leaves one thread to whoever computes in this process after it: forward raises the number of threads at its start,
and at its end sets it to one and switches oneDNN off. A reference in the same process is slowed. Environment variables
for processes that are started from here say the same.

reference: b_layer_norm
device: cpu
verdict: not FASTER
"""

import os

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.norm = nn.LayerNorm(cols)
        self.most = os.cpu_count() or 1
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = "1"
        os.environ["ATEN_CPU_CAPABILITY"] = "default"
        os.environ["OMP_WAIT_POLICY"] = "passive"

    def forward(self, x):
        torch.set_num_threads(self.most)
        result = self.norm(x)
        torch.set_num_threads(1)
        torch.backends.mkldnn.set_flags(False)
        return result
