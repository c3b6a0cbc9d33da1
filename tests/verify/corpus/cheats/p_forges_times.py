"""Replaces the function by which the process answers the tool: every list of times in an answer gets a hundredth of
its values. Each call does the work ten times, so that only the forged times are fast.

reference: p_product
device: both
verdict: not FASTER
"""

import torch
from torch import nn

import mm32.verify.exchange.wire as wire

send = wire.Connection.send


def forged(self, header, tensors=()):
    for name, value in header.items():
        if isinstance(value, list) and value and all(isinstance(item, float) for item in value):
            header[name] = [item / 100 for item in value]
    return send(self, header, tensors)


wire.Connection.send = forged


class ModelNew(nn.Module):
    def forward(self, a, b):
        for _ in range(10):
            c = torch.relu(a.T @ b.T)
        return c
