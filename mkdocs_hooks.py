"""Hooks of `make docs`, which turn pages of the repository into pages of the site.

The records that pages link to are copied into the site: /benchmarks/results/CARD/NAME.json in the repository is
records/CARD/NAME.json there. A <picture>, whose file a browser chooses by the system's colours, becomes two images; the theme
shows the one for its own light or dark switch. Figures in tables do not break over two lines. Links to the repository and to a
page's source appear if the repository is known.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parent
RESULTS = ROOT / "benchmarks" / "results"
PICTURE = re.compile(r'<picture>.*?srcset="([^"]*)".*?<img alt="([^"]*)" src="([^"]*)">.*?</picture>', re.S)
# In tables: a time, an error, an interval. A browser would break them at the space, the minus or the dash.
FIGURE = re.compile(r"\d[\d.]* (?:ms|µs|s|u)\b|\d[\d.]*e[-+]\d+|\(\d[\d.]*–\d[\d.]*\)")
SOURCE = re.compile(r'^Source = "(https://[^"]+)"', re.M)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    url = repository((ROOT / "pyproject.toml").read_text(encoding="utf-8"), os.environ)
    if url is not None:
        config.repo_url = url
        config.repo_name = "/".join(url.split("/")[3:])
        config.edit_uri = "edit/main/docs/"
    return config


def repository(pyproject: str, environment: Any) -> str | None:
    """Return the URL of the repository: `urls.Source` of pyproject.toml, or that of the workflow that builds the site."""
    if named := SOURCE.search(pyproject):
        return named[1].rstrip("/")
    server, name = environment.get("GITHUB_SERVER_URL"), environment.get("GITHUB_REPOSITORY")
    return f"{server}/{name}" if server and name else None


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    for record in sorted(RESULTS.glob("*/*.json")):
        name = f"records/{record.relative_to(RESULTS).as_posix()}"
        files.append(File.generated(config, name, abs_src_path=str(record)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    return with_both_pictures(with_whole_figures(with_links_to_records(markdown, page.file.src_uri)))


def with_links_to_records(markdown: str, page: str) -> str:
    """Return the text of `page` (its path in docs/) with its links to records made relative to it."""
    return markdown.replace("](/benchmarks/results/", f"]({'../' * page.count('/')}records/")


def with_whole_figures(markdown: str) -> str:
    """Return the text with each figure in its tables kept on one line; code is left as it is."""

    def line(text: str) -> str:
        if not text.startswith("|"):
            return text
        parts = re.split(r"(`[^`]*`)", text)
        parts[::2] = (FIGURE.sub(r'<span class="figure">\g<0></span>', part) for part in parts[::2])
        return "".join(parts)

    return "\n".join(map(line, markdown.split("\n")))


def with_both_pictures(markdown: str) -> str:
    """Return the text with two images, for a light and a dark page, in place of each <picture>."""
    return PICTURE.sub(r"![\2](\3#only-light)![\2](\1#only-dark)", markdown)
