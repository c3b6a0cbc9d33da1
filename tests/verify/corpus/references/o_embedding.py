"""Token and position embeddings, added and normalised."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, words, features, length):
        super().__init__()
        self.words = nn.Embedding(words, features, padding_idx=0)
        self.places = nn.Parameter(torch.randn(length, features))
        self.norm = nn.LayerNorm(features)

    def forward(self, tokens):
        return self.norm(self.words(tokens) + self.places)


def get_inputs() -> list[object]:
    return [torch.randint(0, 20000, (64, 256))]


def get_init_inputs() -> list[object]:
    return [20000, 256, 256]
