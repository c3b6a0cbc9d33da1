"""Finds the reference's Model among the subclasses of nn.Module in its own process and wraps its forward in a wait of
twice its time; the candidate is the reference's own code. It also plants the wait in nn.Module's __call__ for every
class of that name that is defined later.

reference: b_row_max
device: both
verdict: not FASTER
"""

import time

import torch
from torch import nn

true_call = nn.Module.__call__


def slow_call(self, *args, **kwargs):
    start = time.perf_counter()
    result = true_call(self, *args, **kwargs)
    if type(self).__name__ == "Model":
        end = time.perf_counter() + 2 * (time.perf_counter() - start)
        while time.perf_counter() < end:
            pass
    return result


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        nn.Module.__call__ = slow_call
        for known in nn.Module.__subclasses__():
            if known.__name__ == "Model" and not hasattr(known, "true_forward"):
                known.true_forward = known.forward

                def forward(self, *args):
                    first = self.true_forward(*args)
                    self.true_forward(*args)
                    return first

                known.forward = forward

    def forward(self, x):
        values, places = torch.max(x, dim=1)
        return values, places
