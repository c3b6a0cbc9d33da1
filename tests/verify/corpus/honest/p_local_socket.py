"""Sends its settings to a helper thread over a local socket pair, and reads them back, as a logging or tuning service
would.

reference: p_product
device: both
verdict: SAME
"""

import json
import socket
import threading

import torch
from torch import nn


def echo(end):
    end.sendall(end.recv(1 << 16))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        ours, theirs = socket.socketpair()
        thread = threading.Thread(target=echo, args=(theirs,))
        thread.start()
        ours.sendall(json.dumps({"split": 2}).encode())
        self.split = json.loads(ours.recv(1 << 16))["split"]
        thread.join()

    def forward(self, a, b):
        half = a.shape[0] // self.split
        return torch.relu(a[:half].T @ b[:, :half].T + a[half:].T @ b[:, half:].T)
