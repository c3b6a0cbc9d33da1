"""Hooks of `make docs`: the records that the pages link to are copied into the site, and the links lead there.

In the repository such a link is /benchmarks/results/CARD/NAME.json; in the site it is records/CARD/NAME.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

RESULTS = Path(__file__).parent / "benchmarks" / "results"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    for record in sorted(RESULTS.glob("*/*.json")):
        name = f"records/{record.relative_to(RESULTS).as_posix()}"
        files.append(File.generated(config, name, abs_src_path=str(record)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    return with_links_to_records(markdown, page.file.src_uri)


def with_links_to_records(markdown: str, page: str) -> str:
    """The text of `page` (its path in docs/), its links to records relative to it."""
    return markdown.replace("](/benchmarks/results/", f"]({'../' * page.count('/')}records/")
