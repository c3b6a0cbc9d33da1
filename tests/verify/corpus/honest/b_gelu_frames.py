"""Looks at its surroundings without using what it sees: it reads the caller's name for a log, counts calls, reads
environment variables and its own process's number, and keeps a weak reference to the last input and output.

reference: b_gelu
device: both
verdict: SAME
"""

import os
import sys
import weakref

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.log = {}
        self.last = None
        self.debug = os.environ.get("GELU_DEBUG", "") == "1"

    def forward(self, x):
        caller = sys._getframe(1).f_code.co_name
        self.log[caller] = self.log.get(caller, 0) + 1
        if self.debug:
            print(os.getpid(), caller, self.log[caller])
        result = F.gelu(x)
        self.last = (weakref.ref(x), weakref.ref(result))
        return result
