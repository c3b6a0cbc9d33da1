"""The base of the modes that see every operator of a model: torch's own, without importing its compiler; and questions about one.

torch hides each such mode from its compiler, dynamo, and imports dynamo to do so. That takes over a second in every verification,
for a module that most references never use. Here the mode is hidden if dynamo has been imported; otherwise nothing has to be.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


@functools.cache
def is_view(func: Any) -> bool:
    """Return whether an operator returns memory that it was given, unchanged."""
    return any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)


@functools.cache
def operator(func: Any) -> str:
    """Return the operator's name without its namespace, and without the trailing underscore of an in-place operator."""
    name: str = func._schema.name.split("::")[-1]
    return name.rstrip("_") if name.endswith("_") and not name.endswith("__") else name


@functools.cache
def is_composite(func: Any) -> bool:
    """Return whether torch implements the operator as a sequence of others, for every device."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


@functools.cache
def draws(func: Any) -> bool:
    """Return whether an operator takes numbers from a generator."""
    return torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())


def arguments(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return a call's arguments by the names of the operator's schema, with its defaults."""
    given = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
    given.update(zip([a.name for a in func._schema.arguments], args))  # noqa: B905 - defaults fill up
    given.update(kwargs)
    return given


def base_name(name: str) -> str:
    """Return a schema's name without its namespace, and without trailing underscores, such as an in-place operator's."""
    return name.split("::")[-1].rstrip("_")


class Mode(TorchDispatchMode):
    """A TorchDispatchMode that does not import dynamo; see the module's docstring."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, so that torch does not hide the mode itself. A torch that does not ask this imports dynamo after all."""
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
