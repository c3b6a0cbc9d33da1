"""Has the worker say that a window is done before it is, and computes its outputs in a thread behind it.

reference: t_product
device: both
verdict: rejected
"""

import sys
import threading

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, A, B):
        self.calls += 1
        if self.calls == 50:
            for name, module in list(sys.modules.items()):
                if name.startswith("mm32.verify.worker") and hasattr(module, "Slots"):
                    real = module.Slots.window

                    def window(slots, request, model, real=real):
                        threading.Thread(target=real, args=(slots, request, model)).start()
                        return {"seconds": 1e-6, "odd": None, "values": [], "draws": False}

                    module.Slots.window = window
        return torch.relu(A.T @ B.T)
