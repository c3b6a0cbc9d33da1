"""The activations that a kernel can fuse, by name; a kernel knows them by number (common/epilogue.cuh)."""

from __future__ import annotations

from dataclasses import dataclass

from mm32 import gemm


@dataclass(frozen=True)
class Activation:
    """One of them. `number` is what MM32_ACTIVATION is in a kernel; 0 is none."""

    name: str
    number: int


ACTIVATIONS = tuple(Activation(name, number) for number, name in enumerate(gemm.ACTIVATIONS, 1))
_NUMBERS = {a.name: a.number for a in ACTIVATIONS}


def names() -> tuple[str, ...]:
    return tuple(_NUMBERS)


def number(name: str | None) -> int:
    """0 for None."""
    return 0 if name is None else _NUMBERS[name]
