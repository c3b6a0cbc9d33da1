"""Straight-through estimators: `x + (y - x).detach()`, which is y except where x is NaN or Inf, and except for rounding.

Runs in the reference's process.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from .operator_mode import Mode, operator


class StraightThrough(Mode):
    """Returns y for `x + (y - x)`, `x - (x - y)`, `(y + x) - x` and `(x - x) + y`, where both x are the same unchanged memory.

    A detached tensor and an alias are the same memory too. `found`: how often y was returned.
    """

    def __init__(self) -> None:
        super().__init__()
        # Sums and differences: the operator, and its operands and its result, each with its version.
        self.made: dict[Any, tuple[str, list[tuple[Tensor, int]]]] = {}
        self.found = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = operator(func)
        mutable = func._schema.is_mutable
        if name not in ("add", "sub") or mutable or kwargs.get("alpha", 1) != 1 or len(args) != 2:
            return func(*args, **kwargs)
        a, b = args
        out = func(*args, **kwargs)
        if not all(isinstance(t, Tensor) and t.is_floating_point() for t in (a, b, out)):
            return out
        y = self._sum(a, b) if name == "add" else self._difference(a, b)
        if y is not None and y.dtype == out.dtype:
            self.found += 1
            with _disable_current_modes():
                return y.expand(out.shape).clone()
        # Holding the tensors keeps their memory from being reused.
        self.made[_key(out)] = (name, [(t, _version(t)) for t in (a, b, out)])
        return out

    def _sum(self, a: Tensor, b: Tensor) -> Tensor | None:
        for x, other in ((a, b), (b, a)):
            if (of := self._operands("sub", other)) is None:
                continue
            y, less = of
            if _key(less) == _key(x):  # x + (y - x)
                return y
            if _key(less) == _key(y):  # y' + (x - x)
                return x
        return None

    def _difference(self, a: Tensor, b: Tensor) -> Tensor | None:
        of = self._operands("sub", b)
        if of is not None and _key(of[0]) == _key(a):  # x - (x - y)
            return of[1]
        of = self._operands("add", a)
        if of is not None:  # (y + x) - x
            return next((y for y, x in (of, of[::-1]) if _key(x) == _key(b)), None)
        return None

    def _operands(self, name: str, t: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the operands of the sum or difference that `t` is; None if it is none, or any of the three was written since."""
        made, of = self.made.get(_key(t), ("", []))
        if made != name or any(_version(one) != version for one, version in of):
            return None
        return of[0][0], of[1][0]


def _key(t: Tensor) -> tuple[Any, ...]:
    return t.untyped_storage()._cdata, t.storage_offset(), tuple(t.shape), t.stride(), t.dtype


def _version(t: Tensor) -> int:
    return 0 if t.is_inference() else t._version
