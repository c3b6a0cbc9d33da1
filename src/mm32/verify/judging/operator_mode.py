"""The base of the modes that see every operator of a model: torch's, without an import of its compiler; and what they ask of one.

torch hides each such mode from its compiler, dynamo, and imports it to do so: over a second in every verification, of a module
that most references never use. Here the mode is hidden where dynamo has been imported, and nothing has to be where it has not.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


@functools.cache
def is_view(func: Any) -> bool:
    """Whether an operator gives out memory that it was given, unchanged."""
    return any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)


@functools.cache
def operator(func: Any) -> str:
    """The operator's name without its namespace; of an in-place one without the underscore behind."""
    name: str = func._schema.name.split("::")[-1]
    return name.rstrip("_") if name.endswith("_") and not name.endswith("__") else name


@functools.cache
def is_composite(func: Any) -> bool:
    """Whether torch has the operator as a sequence of others, for every device."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


@functools.cache
def draws(func: Any) -> bool:
    """Whether an operator takes numbers from a generator."""
    return torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())


def arguments(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """A call's arguments by the names of the operator's schema, defaults among them."""
    given = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
    given.update(zip([a.name for a in func._schema.arguments], args))  # noqa: B905 - defaults fill up
    given.update(kwargs)
    return given


def base_name(name: str) -> str:
    """A schema's name without the library's, and without the underscore of an operator that works in place."""
    return name.split("::")[-1].rstrip("_")


class Mode(TorchDispatchMode):
    """A TorchDispatchMode; see above."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch asks this before it hides the mode itself. Where it does not ask, the import is made after all."""
        return False

    def __init_subclass__(cls, **options: Any) -> None:
        raw = cls.__torch_dispatch__
        hidden: list[Any] = []

        @functools.wraps(raw)
        def dispatch(*args: Any, **kwargs: Any) -> Any:
            if "torch._dynamo" not in sys.modules:
                return raw(*args, **kwargs)
            if not hidden:
                import torch._dynamo

                hidden.append(torch._dynamo.disable(raw))
            return hidden[0](*args, **kwargs)

        cls.__torch_dispatch__ = dispatch  # type: ignore[method-assign]
        super().__init_subclass__(**options)
