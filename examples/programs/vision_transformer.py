"""timm's ViT-L/16 with random weights: a training step on random images.

    python examples/programs/vision_transformer.py [--small]        # needs timm: pip install -e ".[programs]"

The model and the step are as in timm's documentation: create_model, cross entropy, AdamW. The model's attention is
scaled_dot_product_attention, whose fused kernels have their products inside, out of reach of TF32 settings and of mm32.
"""

from __future__ import annotations

import sys

import timm
import torch
from torch.nn import functional as F

from mm32.bench import models


def make(device: str, small: bool) -> list[models.Model]:
    name, batch, size = ("vit_tiny_patch16_224", 2, 64) if small else ("vit_large_patch16_224", 32, 224)
    torch.manual_seed(0)
    with torch.device(device):
        weights = timm.create_model(name, pretrained=False, img_size=size).float()
        images = torch.randn(batch, 3, size, size)
        labels = torch.randint(1000, (batch,))

    def loss(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = model(x)
        return F.cross_entropy(logits, y), logits

    def optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=1e-4)

    what = f"timm's {name}, {batch} images of {size} × {size}: forward, backward, AdamW"
    return [models.Model("ViT", what, models.training(weights, (images, labels), loss, optimizer))]


if __name__ == "__main__":
    sys.exit(models.main(__doc__, make))
