"""Makes the package's long description from README.md: a package index has no repository that relative links could lead into.

Each relative link of README.md has the path that it leads to as its text, so without the link the reader still has the path,
in the source distribution. Links with a URL stay.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://)[^)]+\)")


def long_description(readme: str) -> str:
    note = "\n\nPaths in this description are those of the source distribution.\n"
    return RELATIVE_LINK.sub(r"\1", readme).rstrip() + note


class LongDescription(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": long_description(readme)}
