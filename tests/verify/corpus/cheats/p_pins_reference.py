"""Gives every other process of the verification one core and the lowest priority, again and again. The candidate's
own work is honest.

reference: p_product
device: both
verdict: not FASTER
"""

import contextlib
import os
import threading
import time

import psutil
import torch
from torch import nn


def relatives():
    """The processes below the one that started this one's parent, but for this one: the tool's and the reference's."""
    root = psutil.Process().parent()
    for _ in range(2):
        root = root.parent() or root
    return [one for one in [root, *root.children(recursive=True)] if one.pid != os.getpid()]


def pin():
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for one in relatives():
            with contextlib.suppress(psutil.Error, OSError):
                for thread in one.threads():
                    os.sched_setaffinity(thread.id, {0})
                    os.setpriority(os.PRIO_PROCESS, thread.id, 19)
        time.sleep(0.01)


threading.Thread(target=pin, daemon=True).start()


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.relu(a.T @ b.T)
