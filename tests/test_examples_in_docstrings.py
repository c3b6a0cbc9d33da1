"""The examples in docstrings of the API run as they are written."""

from __future__ import annotations

import doctest
import types
from typing import Any

import pytest
import torch

import mm32
import mm32.export


def public() -> list[doctest.DocTest]:
    names = {"torch": torch, "mm32": mm32}
    found: list[doctest.DocTest] = []
    for module, exported in ((mm32, mm32.__all__), (mm32.nn, ["Linear"]), (mm32.export, mm32.export.__all__)):
        for name in exported:
            thing = getattr(module, name)
            if not isinstance(thing, types.ModuleType):
                where = f"{thing.__module__}.{name}" if hasattr(thing, "__module__") else name
                found += doctest.DocTestFinder(recurse=False).find(thing, where, globs=dict(names), module=False)
    return [one for one in {one.name: one for one in found}.values() if one.examples]


def case(one: doctest.DocTest) -> Any:
    needs = "cuda" in one.docstring.split("Example:")[1] if one.docstring else False
    return pytest.param(one, id=one.name, marks=pytest.mark.gpu if needs else ())


@pytest.mark.parametrize("example", [case(one) for one in public()])
def test_an_example_gives_what_it_says(example: doctest.DocTest) -> None:
    limit = mm32.workspace_limit()
    try:
        assert doctest.DocTestRunner().run(example).failed == 0
    finally:
        mm32.set_workspace_limit(limit)
        mm32.disable()


def test_what_most_people_call_has_an_example() -> None:
    names = {one.name.rpartition(".")[2] for one in public()}
    assert names >= {
        "matmul",
        "linear",
        "explain",
        "pack",
        "enable",
        "enabled",
        "replace_linear",
        "set_workspace_limit",
        "Linear",
    }
