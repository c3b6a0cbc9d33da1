"""The convolution by Winograd's tiles of 2 x 2 from 4 x 4: sums and differences of pixels and of weights are multiplied.

reference: o_conv_relu
device: both
verdict: SAME
"""

import torch
from torch import nn

B = torch.tensor([[1.0, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
G = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
A = torch.tensor([[1.0, 1, 1, 0], [0, 1, -1, -1]])


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.conv = nn.Conv2d(inner, outer, 3, padding=1)

    def forward(self, x):
        if not bool(x.isfinite().all()):
            return torch.relu(self.conv(x))
        b, g, a = (t.to(x.device) for t in (B, G, A))
        tiles = torch.nn.functional.pad(x, (1, 1, 1, 1)).unfold(2, 4, 2).unfold(3, 4, 2)  # n c h w 4 4
        data = b @ tiles @ b.T
        weight = g @ self.conv.weight @ g.T
        product = torch.einsum("nchwij,ocij->nohwij", data, weight)
        out = a @ product @ a.T  # n o h w 2 2
        n, o, h, w = out.shape[:4]
        out = out.permute(0, 1, 2, 4, 3, 5).reshape(n, o, 2 * h, 2 * w)
        return torch.relu(out + self.conv.bias[:, None, None])
