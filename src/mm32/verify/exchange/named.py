"""Named tuples: what is sent of their classes, and the classes that they arrive in.

A class never travels, only its name and its fields' names. A script's process looks for a class of the script's own that has
these; everywhere else, a class is made by collections.namedtuple. The names may come from a candidate's process, and
namedtuple evaluates them, so they are checked on both sides.
"""

from __future__ import annotations

import collections
import functools
import keyword
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from torch.nn.utils.rnn import PackedSequence

MOST_FIELDS = 256
LONGEST_NAME = 128  # characters
MOST_KINDS = 64  # of named tuples in one value: it takes a third of a millisecond to make a class

Kind = tuple[str, tuple[str, ...]]  # a class's name, and its fields'
Classes = Callable[[Kind], Any]  # returns the class of a kind

PACKED = (PackedSequence.__name__, PackedSequence._fields)


def is_kind(name: Any, fields: Any) -> bool:
    """Return whether these may be the names of a named tuple's class and fields."""
    return (
        _is_name(name)
        and isinstance(fields, (list, tuple))
        and len(fields) <= MOST_FIELDS
        and all(_is_name(field) for field in fields)
        and len(set(fields)) == len(fields)
    )


def _is_name(name: Any) -> bool:
    # In ASCII alone: Python takes some different letters for the same one.
    fine = type(name) is str and 0 < len(name) <= LONGEST_NAME and name.isascii() and name.isidentifier()
    return fine and not keyword.iskeyword(name) and not name.startswith("_")


def kind_of(value: tuple[Any, ...]) -> Kind | None:
    """Return the kind of a named tuple; None for any other tuple, and for names that `is_kind` refuses."""
    fields: Any = getattr(type(value), "_fields", None)
    name = type(value).__name__
    if isinstance(fields, tuple) and len(fields) == len(value) and is_kind(name, fields):
        return name, fields
    return None


@functools.lru_cache(maxsize=4 * MOST_KINDS)
def plain_class(kind: Kind) -> Any:
    """Return a class that collections.namedtuple makes: always the same one for a kind, as long as it is used."""
    name, fields = kind
    if not is_kind(name, fields):
        raise ValueError("not the names of a named tuple")
    return collections.namedtuple(name, fields)


def class_in(module: ModuleType | None, kind: Kind) -> Any:
    """Return the class of this kind that a script's module has, torch's PackedSequence, or else `plain_class`."""
    name, fields = kind
    own = vars(module).get(name) if module is not None else None
    if isinstance(own, type) and issubclass(own, tuple) and getattr(own, "_fields", None) == fields:
        return own
    return PackedSequence if kind == PACKED else plain_class(kind)


def like(tree: Any, items: Iterable[Any]) -> Any:
    """Return a list, tuple or named tuple of the class of `tree` with these items."""
    if isinstance(tree, tuple) and hasattr(type(tree), "_fields"):
        return type(tree)._make(items)  # type: ignore[attr-defined]
    return type(tree)(list(items))
