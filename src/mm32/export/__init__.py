"""Exports a plan as one Python file with the CUDA C++ inside. Only names here; the order to read: script, cuda, host, python."""

import sys
from types import ModuleType

from mm32.export.script import export, export_script, write

__all__ = ["export", "export_script", "write"]


class _Package(ModuleType):
    """A package that, when it is called in place of its function of the same name, says where that function is."""

    def __call__(self, *_: object, **__: object) -> object:
        raise TypeError("mm32.export is a package: call mm32.export.export with a layout and the sizes m, n and k")


sys.modules[__name__].__class__ = _Package
