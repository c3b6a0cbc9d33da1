"""The LSTM written out: one product for all steps' inputs, then a product for each step.

reference: o_lstm
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, hidden):
        super().__init__()
        self.lstm = nn.LSTM(inner, hidden, batch_first=True)

    def forward(self, x):
        m = self.lstm
        h = torch.zeros(x.shape[0], m.hidden_size, device=x.device)
        c = torch.zeros_like(h)
        gates = torch.nn.functional.linear(x.transpose(0, 1), m.weight_ih_l0, m.bias_ih_l0 + m.bias_hh_l0)
        back = m.weight_hh_l0.t().contiguous()
        out = []
        for step in gates:
            i, f, g, o = torch.addmm(step, h, back).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            out.append(h)
        return torch.stack(out, 1), h[None], c[None]
