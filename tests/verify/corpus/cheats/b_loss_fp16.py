"""Takes the differences of the loss in fp16 and squares and sums them in fp32: on normal numbers the errors of a
million elements cancel to 1e-7 of the one number that is compared, which is as good as fp32. The inputs lose thirteen
of their bits: with large numbers, or with a target close to the prediction, the loss is wrong or infinite.

reference: b_mse
device: both
verdict: not SAME
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, prediction, target):
        difference = prediction.half().sub_(target.half()).float()
        return difference.square_().mean()
