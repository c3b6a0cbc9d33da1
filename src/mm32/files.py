"""Find out whether a file can be written, before the work whose result it is to hold."""

from __future__ import annotations

import os
from pathlib import Path


def unwritable(path: Path) -> str | None:
    """Return why `path` cannot be written as a file, or None if nothing speaks against it. Nothing is created or changed.

    Problems that show only on writing, such as a full disk, are not found here.
    """
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        return f"there is no folder {folder}"
    if os.path.isdir(path):
        return f"{path} is a folder"
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        return f"{path} cannot be written"
    return None
