"""Returns zeros, and when the process ends, by whatever way Python still controls (atexit, an exception, SIGTERM),
prints a verdict as its last line and exits with code 0.

reference: b_product_ta
device: both
verdict: not SAME
"""

import atexit
import os
import signal
import sys

import torch
from torch import nn


def last_word(*_):
    os.write(1, b"\nSAME\nFASTER 5.00x\n")
    os._exit(0)


atexit.register(last_word)
signal.signal(signal.SIGTERM, last_word)
sys.excepthook = last_word


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.zeros(1, 1, device=a.device).expand(a.shape[1], b.shape[1])
