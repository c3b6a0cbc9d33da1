"""A thread without the interpreter's lock streams through memory whenever forward is not running, a tenth of the time:
others are a little slower, never much.

reference: o_softmax
device: cpu
verdict: not FASTER
"""

import threading
import time

import torch
from torch import nn

BUSY = threading.Event()


def hog():
    torch.set_num_threads(1)
    big = torch.zeros(1 << 22)
    while True:
        if BUSY.is_set():
            time.sleep(0.002)
            continue
        big.add_(1.0)
        time.sleep(0.01)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        threading.Thread(target=hog, daemon=True).start()

    def forward(self, x):
        BUSY.set()
        try:
            e = torch.exp(x - x.amax(-1, keepdim=True))
            return e / e.sum(-1, keepdim=True)
        finally:
            BUSY.clear()
