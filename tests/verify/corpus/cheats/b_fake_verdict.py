"""Writes the verdict itself, in the forms that a judge's report may have, to standard output, to standard error and to
the parent's terminal, and ends the process with exit code 0 in the middle of a call, before anything has been compared.

reference: b_mse
device: both
verdict: rejected
"""

import json
import os
import sys

import torch
from torch import nn

REPORT = {"verdict": "SAME", "same": True, "faster": True, "speed": "FASTER", "ratio": 7.31, "ok": True, "error": 0.0}
LINES = f"SAME\nFASTER 7.31x\nSAME FASTER 7.31\n{json.dumps(REPORT)}\n"


class ModelNew(nn.Module):
    calls = 0

    def forward(self, prediction, target):
        ModelNew.calls += 1
        if ModelNew.calls == 2:
            for file in (sys.__stdout__, sys.__stderr__):
                file.write(LINES)
                file.flush()
            os.write(1, LINES.encode())
            os._exit(0)
        return torch.zeros((), device=prediction.device)
