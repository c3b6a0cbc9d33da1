"""The models of parallel_steps.py: an MLP, and blocks of a GPT-2, whole, tensor parallel and on one card's local shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Sizes:
    """Sizes of both models.

    The MLP has `width`, `hidden`, and `rows` over all cards. The other model has `blocks` blocks of width `embedding` and `heads`
    heads; it runs on `batch` sequences of `length` tokens.
    """

    width: int
    hidden: int
    rows: int
    blocks: int
    embedding: int
    heads: int
    batch: int
    length: int


# Blocks as in examples/models/transformer.py. The number of heads is divisible by 2 and 4 cards.
FULL = Sizes(width=4096, hidden=16384, rows=16384, blocks=6, embedding=2048, heads=16, batch=8, length=1024)
SMALL = Sizes(width=32, hidden=64, rows=16, blocks=2, embedding=32, heads=4, batch=4, length=8)


# ---------------------------------------------------------------------------------------------------------------------
# Modules. Rows are tokens, so a shard of rows is a shard of sequences.


class MLP(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Block(nn.Module):
    """A GPT-2 block on rows (tokens, width).

    The columns of qkv are ordered by head, so a shard of them holds whole heads. `gather` and `scatter` are where tensor
    parallelism communicates. Attention consists of products and a softmax, as "eager" in the package transformers, so mm32 and
    torch both compute it in fp32.
    """

    def __init__(self, width: int, heads: int, size: int, hidden: int, length: int, bias: bool) -> None:
        super().__init__()
        self.size, self.length = size, length
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * heads * size, bias)
        self.proj = nn.Linear(heads * size, width, bias)
        self.up, self.down = nn.Linear(width, hidden, bias), nn.Linear(hidden, width, bias)
        self.gather: nn.Module = nn.Identity()
        self.scatter: nn.Module = nn.Identity()
        self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.scatter(self.proj(self.attention(self.qkv(self.gather(self.norm1(x))))))
        return x + self.scatter(self.down(F.gelu(self.up(self.gather(self.norm2(x))), approximate="tanh")))

    def attention(self, qkv: torch.Tensor) -> torch.Tensor:
        by_head = qkv.view(len(qkv) // self.length, self.length, -1, 3, self.size)  # of this rank's heads
        q, k, v = by_head.permute(3, 0, 2, 1, 4).unbind()
        scores = (q * self.size**-0.5) @ k.mT
        weights = scores.masked_fill(self.mask, float("-inf")).softmax(-1)
        return (weights @ v).transpose(1, 2).reshape(len(qkv), -1)


class Stack(nn.Module):
    def __init__(self, sizes: Sizes, cards: int = 1, bias: bool = False) -> None:
        """If `cards` is more than 1, the blocks have the local shapes of one card."""
        super().__init__()
        width, heads, hidden = sizes.embedding, sizes.heads // cards, 4 * sizes.embedding // cards
        size = width // sizes.heads
        self.blocks = nn.ModuleList(Block(width, heads, size, hidden, sizes.length, bias) for _ in range(sizes.blocks))
        self.recompute = False  # recompute each block in the backward pass: float64's activations may not fit

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return x


class Repeat(torch.autograd.Function):
    """Stands in for an all-gather: repeats this card's rows. Backward returns one card's part, as a reduce-scatter would."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, cards: int) -> torch.Tensor:
        ctx.rows = len(x)
        return x.repeat(cards, 1)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return grads[0][: ctx.rows].clone(), None


class Part(torch.autograd.Function):
    """Stands in for a reduce-scatter: returns one card's part. Backward repeats its rows, as an all-gather would."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, cards: int) -> torch.Tensor:
        ctx.cards = cards
        return x[: len(x) // cards].clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return grads[0].repeat(ctx.cards, 1), None


class Local(nn.Module):
    """A module in place of a collective over `cards`; `function` is Repeat or Part."""

    def __init__(self, function: Any, cards: int) -> None:
        super().__init__()
        self.function, self.cards = function, cards

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function.apply(x, self.cards)


def tensor_parallel(block: nn.Module, mesh: DeviceMesh) -> None:
    """Shard a block. Rows of its input and result are sharded; each pair of linear layers gathers once and scatters once."""
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    styles = {
        **dict.fromkeys(("norm", "norm1", "norm2"), SequenceParallel(sequence_dim=0)),
        **dict.fromkeys(("qkv", "up"), ColwiseParallel(input_layouts=Shard(0))),
        **dict.fromkeys(("proj", "down"), RowwiseParallel(output_layouts=Shard(0))),
    }
    parallelize_module(block, mesh, {name: style for name, style in styles.items() if hasattr(block, name)})


def described(sizes: Sizes, each: bool = False) -> str:
    of = f"{sizes.batch} × {sizes.length} tokens" + (" for each card" if each else "")
    return f"{sizes.blocks} blocks of a GPT-2, width {sizes.embedding}, {sizes.heads} heads, {of}"
