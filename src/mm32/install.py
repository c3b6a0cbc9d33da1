"""The command that installs what is missing. Only the standard library is imported, because other packages may be missing."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path


def pip_install(extra: str) -> str:
    """The command that installs one of mm32's extras ("cu13", "cli", ...), from the same place as mm32 itself."""
    folder = Path(__file__).resolve().parents[2]  # the root of a checkout, if this is one: src/mm32/install.py
    if (folder / "pyproject.toml").is_file():
        return f"pip install -e '{folder}[{extra}]'"
    source = _installed_from()
    if source is None:  # not by name from an index: no release is on one yet
        return f"pip install '.[{extra}]' in a checkout of mm32"
    return f"pip install 'mm32[{extra}] @ {source}'"


def _installed_from() -> str | None:
    """The URL that pip installed mm32 from; None if that was a package index, or is not known."""
    try:
        written = importlib.metadata.distribution("mm32").read_text("direct_url.json")
        origin = json.loads(written or "{}")
        vcs = origin.get("vcs_info", {})
        return f"{vcs['vcs']}+{origin['url']}@{vcs['commit_id']}" if vcs else origin.get("url")
    except Exception:  # no metadata, or not as specified: the command is only advice, not worth an error
        return None
