"""torch.optim.Muon: a training step of an MLP whose weights it updates; biases by AdamW.

    python examples/programs/muon.py [--small]        # torch.optim.Muon is there from torch 2.9 on

Muon's own products, the Newton-Schulz iterations, are bfloat16 whatever the weights' dtype, so mm32 computes only the network's
products. The prediction and the gradient are compared, not the update, which has bfloat16's error in float64 too. For a
Newton-Schulz iteration in fp32, see examples/models/newton_schulz.py.
"""

from __future__ import annotations

import copy
import sys
from itertools import pairwise

import torch
from torch import nn

from mm32.bench import models


def make(device: str, small: bool) -> list[models.Model]:
    batch, width, layers = (64, 64, 3) if small else (8192, 4096, 6)
    torch.manual_seed(0)
    with torch.device(device):
        linears = [nn.Linear(a, b) for a, b in pairwise([width] * (layers + 1))]
        weights = nn.Sequential(*(module for linear in linears for module in (linear, nn.GELU())))
        inputs, targets = torch.randn(batch, width), torch.randn(batch, width)

    def prepare(dtype: torch.dtype) -> models.Step:
        model, x, y = copy.deepcopy(weights).to(dtype), inputs.to(dtype), targets.to(dtype)
        matrices, rest = ([p for p in model.parameters() if (p.dim() == 2) == two] for two in (True, False))
        optimizers = torch.optim.Muon(matrices, lr=1e-3), torch.optim.AdamW(rest, lr=1e-4)

        def step() -> models.Outcome:
            model.zero_grad()
            prediction = model(x)
            (prediction - y).square().mean().backward()
            for optimizer in optimizers:
                optimizer.step()
            gradient = [p.grad for p in model.parameters() if p.grad is not None]
            return {"prediction": [prediction.detach()], "gradient": gradient}

        return step

    what = f"an MLP of {layers} layers of {width}, batch {batch}: forward, backward, torch.optim.Muon in bfloat16"
    return [models.Model("Muon", what, prepare)]


if __name__ == "__main__":
    sys.exit(models.main(__doc__, make))
