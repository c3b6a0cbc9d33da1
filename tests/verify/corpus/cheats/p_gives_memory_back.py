"""After each call a thread gives 16 GiB of the card back and takes as much again: the driver erases what was given back in the
background, which makes others' memory 11 % slower for 40 ms. The candidate's own work is honest.

reference: p_large_elementwise
device: cuda
verdict: not FASTER
"""

import threading

import torch
from torch import nn

HELD = []


def give_back():
    HELD.clear()
    torch.cuda.empty_cache()
    HELD.append(torch.empty(16 << 30, dtype=torch.uint8, device="cuda"))


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = a * b
        threading.Timer(0.001, give_back).start()
        return out
