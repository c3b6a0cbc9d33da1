"""Burdens only what comes right after it: for three milliseconds after each return two threads multiply matrices,
unless forward is called again. If reference and candidate are timed in turns, it is always the reference that finds the
processors busy; a look at the machine a moment later finds it idle.

reference: b_conv2d
device: cpu
verdict: not FASTER
"""

import atexit
import threading
import time

import torch
from torch import nn

go = threading.Event()
until = 0.0
over = False


def burn():
    a = torch.rand(160, 160)
    out = torch.empty(160, 160)
    end = time.monotonic() + 120
    while time.monotonic() < end and not over:
        if not go.wait(0.5):
            continue
        while time.monotonic() < until:
            torch.mm(a, a, out=out)
        go.clear()


@atexit.register
def stop():
    global over
    over = True
    time.sleep(0.02)


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        for _ in range(2):
            threading.Thread(target=burn, daemon=True).start()

    def forward(self, x):
        global until
        until = 0.0
        result = self.conv(x)
        until = time.monotonic() + 0.003
        go.set()
        return result
