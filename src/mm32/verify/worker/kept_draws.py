"""Large random tensors of a constructor, kept from one construction to the next.

A model is constructed anew, from the same seed, for each probe with other parameters. A layer of 8192 x 8192 numbers takes 0.3
seconds to draw the same numbers again, and a tenth of that to copy them. A kept tensor is used only where the generator is in the
state in which it was drawn; the generator is left in the state that drawing leaves, so the script can see no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import init
from torch.overrides import TorchFunctionMode

LARGE = 1 << 20  # tensors of at least this many numbers are kept
MOST = 2 << 30  # the most bytes that are kept
# Functions that fill a tensor from torch's generator, whatever was in it.
FILLS = {
    torch.Tensor.uniform_, torch.Tensor.normal_,
    init.uniform_, init.normal_, init.trunc_normal_, init.orthogonal_,
    init.xavier_uniform_, init.xavier_normal_, init.kaiming_uniform_, init.kaiming_normal_,
}  # fmt: skip
PLAIN = (int, float, str)


class KeptDraws(TorchFunctionMode):
    """While it is active, FILLS of large tensors on the CPU copy what the same call made before.

    A call's result is kept when the call is met for the second time: most processes construct a model once."""

    def __init__(self) -> None:
        super().__init__()
        self._met: set[object] = set()
        self._kept: dict[object, tuple[Tensor, Tensor]] = {}  # what was made, and the generator's state then
        self._bytes = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        key = self._key(func, args, kwargs) if func in FILLS else None
        if key is None:
            return func(*args, **kwargs)
        target: Tensor = args[0] if args else kwargs["tensor"]
        if key in self._kept:
            made, after = self._kept[key]
            torch.set_rng_state(after)
            with torch.no_grad():
                return target.copy_(made)
        result = func(*args, **kwargs)
        size = target.numel() * target.element_size()
        if key in self._met and self._bytes + size <= MOST:
            self._kept[key] = target.detach().clone(), torch.get_rng_state()
            self._bytes += size
        self._met.add(key)
        return result

    def _key(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> object | None:
        """Return what determines a call's result; None for a call whose result is not kept."""
        given = {name: value for name, value in kwargs.items() if (name, value) != ("generator", None)}
        target = args[0] if args else given.pop("tensor", None)
        if type(target) not in (Tensor, torch.nn.Parameter) or target.numel() < LARGE or target.device.type != "cpu":
            return None
        if func in (torch.Tensor.uniform_, torch.Tensor.normal_) and target.requires_grad and torch.is_grad_enabled():
            return None  # it raises an error, or autograd records it
        if not target.is_contiguous() or not all(isinstance(one, PLAIN) for one in (*args[1:], *given.values())):
            return None
        state = torch.get_rng_state().numpy().tobytes()
        return func, target.shape, target.dtype, args[1:], tuple(given.items()), state
