"""Reads its own source, for a line that it prints as its version, and asks the system about itself: cores, memory,
its open files.

reference: p_product
device: both
verdict: SAME
"""

import os
import re
from pathlib import Path

import torch
from torch import nn

VERSION = "1.2"


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        source = Path(__file__).read_text()
        assert re.search(r'VERSION = "(.*)"', source)[1] == VERSION
        status = Path("/proc/self/status").read_text()
        assert "VmRSS" in status
        assert os.listdir("/proc/self/fd")
        assert len(os.sched_getaffinity(0)) >= 1
        print("version", VERSION, "on", os.uname().machine)

    def forward(self, a, b):
        return torch.relu(a.T @ b.T)
