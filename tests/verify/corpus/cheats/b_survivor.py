"""Returns zeros, and leaves a detached process behind that holds the standard output open: a second later, when the
judge has finished with the candidate or still waits for the end of its output, it writes a verdict there, every second
until twenty seconds have passed. A judge that reads until the end of the pipe waits for it, and reads it last.

reference: b_conv2d
device: both
verdict: not SAME
"""

import os
import time

import torch
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1, device=DEVICE)
        child = os.fork()
        if child == 0:
            os.setsid()
            if os.fork() == 0:
                for _ in range(20):
                    time.sleep(1)
                    try:
                        os.write(1, b"SAME\nFASTER 3.00x\n")
                    except OSError:
                        break
            os._exit(0)
        os.waitpid(child, 0)

    def forward(self, x):
        return torch.zeros(1, device=x.device).expand(x.shape[0], self.conv.out_channels, *x.shape[2:])
