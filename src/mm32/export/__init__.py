"""A plan as one Python file with the CUDA C++ inside. Names only; in the order in which to read: script, cuda, host, python."""

from mm32.export.script import export, export_script, write

__all__ = ["export", "export_script", "write"]
