"""After each call a thread gives most of the card's memory back and takes as much again: the driver erases what was given back
in the background, which makes others' memory 11 % slower for some 200 ms. The candidate's own work is honest.

reference: p_large_elementwise
device: cuda
verdict: SAME, not FASTER
"""

import threading

import torch
from torch import nn

SHARE = 0.6  # of what is free
HELD = []


def give_back():
    HELD.clear()
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    HELD.append(torch.empty(int(SHARE * free), dtype=torch.uint8, device="cuda"))


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = a * b
        threading.Timer(0.001, give_back).start()
        return out
