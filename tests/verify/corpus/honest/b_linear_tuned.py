"""Reads a clock: the first call with a shape times three ways of computing the product and keeps the fastest for later
calls. All of them compute the whole result from the call's own inputs.

reference: b_linear_relu
device: both
verdict: SAME
"""

import time

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def way_linear(x, weight, bias):
    return F.linear(x, weight, bias).relu_()


def way_addmm(x, weight, bias):
    return torch.addmm(bias, x, weight.T).relu_()


def way_transposed(x, weight, bias):
    return torch.addmm(bias[:, None], weight, x.T).relu_().T


class ModelNew(nn.Module):
    def __init__(self, inner, cols):
        super().__init__()
        self.linear = nn.Linear(inner, cols, device=DEVICE)
        self.best = {}

    def choose(self, *args):
        times = {}
        for way in (way_linear, way_addmm, way_transposed):
            for _ in range(3):
                if args[0].is_cuda:
                    torch.cuda.synchronize()
                start = time.perf_counter()
                way(*args)
                if args[0].is_cuda:
                    torch.cuda.synchronize()
                times[way] = min(times.get(way, 1e9), time.perf_counter() - start)
        return min(times, key=times.get)

    @torch.no_grad()
    def forward(self, x):
        args = (x, self.linear.weight, self.linear.bias)
        if x.shape not in self.best:
            self.best[x.shape] = self.choose(*args)
        return self.best[x.shape](*args)
