import torch
import torch.nn as nn


class Model(nn.Module):
    """edit distance of token sequences"""

    def forward(self, a, b):
        n, m = a.shape[1], b.shape[1]
        prev = torch.arange(m + 1, device=a.device).repeat(a.shape[0], 1)
        for i in range(n):
            cur = [torch.full_like(prev[:, 0], i + 1)]
            sub = prev[:, :-1] + (a[:, i : i + 1] != b).long()
            base = torch.minimum(sub, prev[:, 1:] + 1)
            for j in range(m):
                cur.append(torch.minimum(base[:, j], cur[-1] + 1))
            prev = torch.stack(cur, 1)
        return prev[:, -1]


def get_inputs():
    a = torch.randint(0, 6, (64, 24))
    b = a.clone()
    k = torch.rand(64, 24) < 0.3
    b[k] = torch.randint(0, 6, (int(k.sum()),))
    return [a, b]
