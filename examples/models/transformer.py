"""A GPT-2 of the transformers package, random weights: inference, and a training step.

    python examples/models/transformer.py [--small]        # needs: pip install -e ".[examples]"

GPT-2, because its layers keep the model's dtype, so that the same model in float64 is a truth for the one in float32; several
newer models compute norms and softmax in float32 whatever their dtype is. Attention is "eager", torch's own bmm and softmax:
the fused kernels of scaled_dot_product_attention have their products inside, out of reach of TF32 settings and of mm32.
"""

from __future__ import annotations

import copy
import sys

import torch
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

from mm32.bench import models


def make(device: str, small: bool) -> list[models.Model]:
    layers, width, heads, vocabulary, batch, length = (
        (2, 128, 4, 1000, 2, 64) if small else (6, 2048, 16, 50257, 4, 1024)
    )
    config = GPT2Config(
        n_layer=layers, n_embd=width, n_head=heads, vocab_size=vocabulary, n_positions=length,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, attn_implementation="eager",
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(device):
        weights = GPT2LMHeadModel(config).float()
        tokens = torch.randint(vocabulary, (batch, length))
    targets = tokens.roll(-1, 1)
    targets[:, -1] = -100  # nothing follows the last token; cross_entropy leaves -100 out

    def inference(dtype: torch.dtype) -> models.Step:
        model = copy.deepcopy(weights).to(dtype).eval()

        @torch.no_grad()
        def step() -> models.Outcome:
            return {"logits": [model(tokens).logits]}

        return step

    def training(dtype: torch.dtype) -> models.Step:
        model = copy.deepcopy(weights).to(dtype).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

        def step() -> models.Outcome:
            optimizer.zero_grad()
            logits = model(tokens).logits
            F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
            optimizer.step()
            # The loss is not compared: the error of one number is luck, that of a gradient is an average over millions.
            return {"gradient": [p.grad for p in model.parameters() if p.grad is not None]}

        return step

    size = f"GPT-2 of {layers} layers, width {width}, vocabulary {vocabulary}, on {batch} × {length} tokens"
    return [
        models.Model("transformer, inference", f"{size}: the logits", inference),
        models.Model("transformer, training", f"{size}: forward, backward, AdamW", training),
    ]


if __name__ == "__main__":
    sys.exit(models.main(__doc__, make))
