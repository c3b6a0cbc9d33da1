"""mm32 for existing models: `enable`, `disable` and blocks of `enabled` turn the drop-in (dropin.py) on and off, and `stats`
says what it did."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from mm32.cuda import launch
from mm32.dropin import TINY, DropIn, Stats, check_precision, prepare
from mm32.options import Precision

_dropin = DropIn("CUDA", prepare, TINY)
_tiers_before: dict[str, int] = {}  # the counts at the last reset
_ENABLE = "enable"


def enable(precision: Precision | None = None) -> None:
    """Turn mm32 on for the whole process: it computes every float32 product of torch on CUDA (mm, addmm, bmm, baddbmm, addmm_,
    baddbmm_ and what is made of them, in forward, backward and compiled code) where it is expected to be at least as fast.

    Args:
        precision: None follows torch's settings at the time of each call (torch.backends.cuda.matmul.fp32_precision, allow_tf32
            or torch.set_float32_matmul_precision): "tf32" if they allow TF32, else "fp32". "fp32", "bf16x6", "ieee" or "tf32", as
            in `mm32.matmul`, holds for the products that mm32 runs, whatever torch's settings are; those are never changed.

    Calling it again changes the precision. Where MM32_DISABLE is set it has no effect, and the log "mm32" says so.

    Raises ValueError for an unknown precision, TypeError for something that is not a name, such as a model.

    Example:
        >>> mm32.enable()
        >>> (torch.randn(64, 32) @ torch.randn(32, 8)).shape
        torch.Size([64, 8])
        >>> mm32.disable()
    """
    _dropin.request(_ENABLE, precision)


def disable() -> None:
    """Turn mm32 off, whoever turned it on: torch's kernels are registered as they were before. It stays off in `mm32.enabled`
    blocks that are still open."""
    _dropin.withdraw_all()


def state() -> str:
    """Say in a few words whether mm32 is on, and with which precision."""
    return _dropin.words()


def is_enabled() -> bool:
    """Return whether mm32 is on anywhere in the process: after `enable`, or inside a block of `enabled`.

    Example:
        >>> mm32.is_enabled()
        False
        >>> with mm32.enabled():
        ...     mm32.is_enabled()
        True
    """
    return _dropin.on


class enabled(contextlib.ContextDecorator):
    """`enable` for a block: ``with mm32.enabled(): ...``, or as a decorator.

    It holds for the whole process, because backward passes run in threads of autograd's own. Where blocks overlap, nested or
    in several threads, the one entered last decides the precision, and mm32 is on until the last one is left.

    Args:
        precision: as in `enable`.

    Raises ValueError for an unknown precision, and TypeError for something that is not a name, such as a function that it would
    decorate without parentheses, and if it is used as a condition, ``if mm32.enabled():``; use `is_enabled` for that.

    Example:
        >>> with mm32.enabled():
        ...     y = torch.randn(64, 32) @ torch.randn(32, 8)
    """

    def __init__(self, precision: Precision | None = None) -> None:
        check_precision(precision, "mm32.enabled", "as a decorator it is written with parentheses, @mm32.enabled()")
        self._precision = precision
        self._who: list[object] = []  # an object for each time that it was entered and not yet left

    def __enter__(self) -> None:
        who = object()
        _dropin.request(who, self._precision)
        self._who.append(who)

    def __exit__(self, *_: object) -> None:
        _dropin.withdraw(self._who.pop())

    def _recreate_cm(self) -> enabled:
        return enabled(self._precision)  # one for each call of a decorated function, which threads may run at once

    def __bool__(self) -> bool:
        raise TypeError(
            "mm32.enabled() is a context manager, and no condition: mm32.is_enabled() says whether mm32 is on"
        )


def stats(reset: bool = False) -> Stats:
    """Return counts of the products that `mm32.enable` looked at: how many mm32 ran, by kernel; how many torch ran, by reason;
    and the time estimated to be saved.

    They include the tiers that computed results, of direct calls (`mm32.matmul`, layers) as well. Tiers are counted on the card;
    this function waits for the card, and products do not.

    Args:
        reset: whether to start again from 0 after reading.
    """
    tiers = launch.tier_calls()
    since = {tier: count - _tiers_before.get(tier, 0) for tier, count in tiers.items()}
    if reset:
        _tiers_before.update(tiers)
    return replace(_dropin.stats(reset), tiers=since)
