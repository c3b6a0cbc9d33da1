import torch
import torch.nn as nn


class Model(nn.Module):
    """Counts of rows in bins from 0 to 1, of which the last one is closed, and of what is cut at 4 before."""

    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, x, y):
        of_rows = torch.stack([torch.histc(row, self.bins, 0.0, 1.0) for row in x])
        cut = y.abs().clamp(max=4.0)
        places = torch.floor(x * 10).long().clamp(0, 9)
        tenths = torch.zeros(10, dtype=x.dtype, device=x.device).index_add(0, places.flatten(), x.flatten())
        return of_rows, torch.histc(cut, self.bins, 0.0, 4.0), tenths


def get_inputs():
    return [torch.rand(4, 1000), torch.randn(3000)]


def get_init_inputs():
    return [32]
