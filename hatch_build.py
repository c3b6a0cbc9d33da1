"""What a build adds to what pyproject.toml says: the package's long description, from README.md, and, in the wheel, the folder of
examples and docs/errors.md, which `mm32 errors` shows.

A package index has no repository that relative links could lead into. If pyproject.toml names a repository (`urls.Source`), the
links lead to its files of this version, and pictures come from it. Otherwise each link becomes its text and its path in the
source distribution, and a picture becomes its text and path. Links with a URL stay.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r'<picture>.*?<img alt="([^"]*)" src="([^"]*)">.*?</picture>', re.S)
PICTURE_FILE = re.compile(r'(?<=")(?=docs/pictures/)')
RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://)/?([^)]+)\)")


def long_description(readme: str, files: str | None = None) -> str:
    """Return the text for a package index.

    `files`: the URL of the folder of the repository's files, if there is one. It is .../blob/VERSION, where hosts have pages that
    show the files; .../raw/VERSION has the files themselves.
    """
    if files is not None:
        readme = PICTURE_FILE.sub(f"{'/raw/'.join(files.rsplit('/blob/', 1))}/", readme)
        return RELATIVE_LINK.sub(lambda link: f"[{link[1]}]({files}/{link[2]})", readme)
    note = "\n\nPaths in this description are those of the source distribution.\n"
    readme = PICTURE.sub(r"\1: \2", readme)
    return RELATIVE_LINK.sub(_as_text, readme).rstrip() + note


def _as_text(link: re.Match[str]) -> str:
    """Return the text of a link and, if it is another text, the path that it leads to."""
    shown, target = link[1], link[2].lstrip("/")
    return shown if shown == target else f"{shown} ({target})"


class LongDescription(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        files = None if source is None else f"{source.rstrip('/')}/blob/v{metadata['version']}"
        metadata["readme"] = {"content-type": "text/markdown", "text": long_description(readme, files)}


class Files(BuildHookInterface):
    """Adds files to the wheel. pyproject.toml's force-include would add copies to an editable install too, which get outdated."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            build_data["force_include"][str(Path(self.root, "examples"))] = "mm32/examples"
            build_data["force_include"][str(Path(self.root, "docs", "errors.md"))] = "mm32/errors.md"
