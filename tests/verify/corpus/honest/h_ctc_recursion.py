"""The recursion itself, for all sequences at once.

reference: h_ctc
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, scores, labels):
        logs = scores.log_softmax(-1)
        length, count, _ = logs.shape
        places = 2 * labels.shape[1] + 1
        states = torch.zeros(count, places, dtype=torch.long, device=labels.device)
        states[:, 1::2] = labels
        skips = torch.zeros_like(states, dtype=torch.bool)
        skips[:, 2:] = (states[:, 2:] != 0) & (states[:, 2:] != states[:, :-2])
        none = torch.full((count, 2), -torch.inf, device=scores.device)
        at = torch.cat([logs[0].gather(1, states[:, :2]), none.new_full((count, places - 2), -torch.inf)], 1)
        for t in range(1, length):
            one = torch.cat([none[:, :1], at[:, :-1]], 1)
            two = torch.where(skips, torch.cat([none, at[:, :-2]], 1), -torch.inf)
            at = torch.stack([at, one, two]).logsumexp(0) + logs[t].gather(1, states)
        return -at[:, -2:].logsumexp(1)
