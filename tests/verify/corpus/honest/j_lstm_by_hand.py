"""The steps of both layers one after another, with the gates' products written out.

reference: j_lstm
device: both
verdict: SAME
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, num_layers=2, batch_first=True)

    def forward(self, x):
        lstm, hidden = self.lstm, []
        for layer in range(2):
            w, u = getattr(lstm, f"weight_ih_l{layer}"), getattr(lstm, f"weight_hh_l{layer}")
            bias = getattr(lstm, f"bias_ih_l{layer}") + getattr(lstm, f"bias_hh_l{layer}")
            h = c = x.new_zeros(x.shape[0], lstm.hidden_size)
            steps = []
            for t in range(x.shape[1]):
                i, f, g, o = (x[:, t] @ w.T + h @ u.T + bias).chunk(4, dim=1)
                c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(c)
                steps.append(h)
            x = torch.stack(steps, dim=1)
            hidden.append(h)
        return x[:, -1], torch.stack(hidden)
