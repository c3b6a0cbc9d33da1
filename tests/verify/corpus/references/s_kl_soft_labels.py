import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """distillation: probabilities of a teacher, logits of a student"""

    def forward(self, z, p):
        return F.kl_div(F.log_softmax(z, 1), p, reduction="batchmean")


def get_inputs():
    return [torch.randn(128, 100), torch.softmax(torch.randn(128, 100), 1)]


def get_init_inputs():
    return []
