"""Products in which 0 times NaN or Inf is 0, as in a kernel that skips zeros.

Such a kernel is a sum by index in place of a product with ones and zeros. Runs in the reference's process.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from .few_terms import product
from .operator_mode import Mode, operator
from .rounding import PRODUCTS


class SkipsZeros(Mode):
    """Runs a model with products in which 0 times NaN or Inf is 0."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = operator(func)
        if not isinstance(out, Tensor) or func._schema.is_mutable or not out.is_floating_point():
            return out
        with _disable_current_modes():
            if name == "mul" and all(isinstance(t, Tensor) for t in args[:2]):
                return torch.where((args[0] == 0) | (args[1] == 0), torch.zeros_like(out), out)
            if name not in PRODUCTS:
                return out
            pair = [args[i] for i in PRODUCTS[name]]
            odd = [~t.isfinite() for t in pair]
            if not any(bool(one.any()) for one in odd):
                return out

            def put(left: Tensor, right: Tensor) -> Any:
                new = list(args)
                for i, t, own in zip(PRODUCTS[name], (left, right), pair, strict=True):
                    new[i] = t.to(own.dtype)
                return new

            nonzero = [t != 0 for t in pair]
            meets = product(func, put(odd[0], nonzero[1]), kwargs, name) + product(
                func, put(nonzero[0], odd[1]), kwargs, name
            )
            finite = func(*put(*(torch.where(one, 0.0, t) for one, t in zip(odd, pair, strict=True))), **kwargs)
            return torch.where(meets > 0, out, finite)
