"""BERT and Llama of the transformers package, random weights: a training step of masked and of causal language modelling.

    python examples/programs/language_models.py [--small]        # needs transformers: pip install -e ".[programs]"

The package makes the models from a configuration. Attention is its default, scaled_dot_product_attention, whose fused kernels
have their products inside. Dropout is 0, because its mask would be different in float64. Llama's norm computes in float32
whatever its dtype is, so the truth has torch.nn.RMSNorm in its place, which is the same formula. The loss is computed from the
logits here, because the package's own loss makes them float32.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable

import torch
from torch.nn import functional as F
from transformers import BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from mm32.bench import models


def loss(model: torch.nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss and the logits. The loss leaves out targets of -100."""
    logits = model(input_ids=tokens).logits
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100), logits


def with_torchs_norm(model: torch.nn.Module) -> torch.nn.Module:
    """Return a copy whose norms compute in the dtype that they are given."""
    copied = copy.deepcopy(model)
    for parent in list(copied.modules()):
        for name, norm in list(parent.named_children()):
            if isinstance(norm, LlamaRMSNorm):
                own = torch.nn.RMSNorm(norm.weight.shape, eps=norm.variance_epsilon)
                own.weight = norm.weight
                setattr(parent, name, own)
    return copied


def bert(device: str, small: bool) -> models.Model:
    sizes = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512}
    batch, length = (2, 64) if small else (32, 512)
    config = BertConfig(
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **({**sizes, "vocab_size": 1000} if small else {})
    )
    torch.manual_seed(0)
    with torch.device(device):
        weights = BertForMaskedLM(config).float()
        tokens = torch.randint(config.vocab_size, (batch, length))
        hidden = torch.rand(batch, length) < 0.15
    masked = tokens.masked_fill(hidden, 103 % config.vocab_size)  # [MASK]
    targets = tokens.masked_fill(~hidden, -100)
    what = (
        f"BERT of {config.num_hidden_layers} layers, width {config.hidden_size}, {batch} × {length} tokens, 15 % masked"
    )

    def optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=1e-4)

    prepare = models.training(weights, (masked, targets), loss, optimizer)
    return models.Model("BERT", f"{what}: forward, backward, AdamW", prepare)


def llama(device: str, small: bool) -> models.Model:
    width, layers, inner, heads, kv_heads, vocabulary, batch, length = (
        (128, 2, 256, 4, 2, 1000, 2, 64) if small else (2048, 16, 8192, 32, 8, 32000, 2, 1024)
    )
    config = LlamaConfig(
        hidden_size=width, num_hidden_layers=layers, intermediate_size=inner, num_attention_heads=heads,
        num_key_value_heads=kv_heads, vocab_size=vocabulary, max_position_embeddings=length, use_cache=False,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(device):
        weights = LlamaForCausalLM(config).float()
        tokens = torch.randint(vocabulary, (batch, length))
    targets = tokens.roll(-1, 1)
    targets[:, -1] = -100  # nothing follows the last token
    count = sum(p.numel() for p in weights.parameters()) / 1e9

    def prepare(dtype: torch.dtype) -> models.Step:
        state: Callable[[torch.nn.Module], torch.nn.Module] = (
            with_torchs_norm if dtype == torch.float64 else lambda m: m
        )
        return models.training(state(weights), (tokens, targets), loss)(dtype)

    what = f"Llama of {layers} layers, width {width}, {count:.2g} · 10⁹ parameters, {batch} × {length} tokens"
    return models.Model("Llama", f"{what}: forward, backward", prepare)


def make(device: str, small: bool) -> list[models.Model]:
    return [bert(device, small), llama(device, small)]


if __name__ == "__main__":
    sys.exit(models.main(__doc__, make))
