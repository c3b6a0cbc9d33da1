"""The recurrent product of the second layer is rounded to TF32: the error is small in each step.

reference: j_lstm
device: both
verdict: not SAME
"""

import torch
from torch import nn


def tf32(x):
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


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
                i, f, g, o = (x[:, t] @ w.T + tf32(h.contiguous()) @ tf32(u.detach().contiguous()).T + bias).chunk(
                    4, dim=1
                )
                c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(c)
                steps.append(h)
            x = torch.stack(steps, dim=1)
            hidden.append(h)
        return x[:, -1], torch.stack(hidden)
