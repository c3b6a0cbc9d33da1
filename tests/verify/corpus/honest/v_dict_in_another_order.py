"""Returns a dict's keys in another order.

reference: v_dict_in_another_order
device: both
verdict: SAME
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, boxes, scores, flags):
        keep = scores.gt(0.5).logical_and(flags)
        size = boxes[:, 2:] - boxes[:, :2]
        order = torch.sort(-scores).indices
        return {"count": keep.long().sum(), "order": order, "keep": keep, "area": size.prod(1)}
