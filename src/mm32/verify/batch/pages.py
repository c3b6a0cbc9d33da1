"""The HTML of a batch: a table, and beside it a folder with the page of each candidate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import html
from .jobs import Job, digest


def folder_of(index: Path) -> Path:
    """Return the folder of the pages that the table at `index` links to."""
    return index.with_name(f"{index.stem}-pages")


def write(index: Path, jobs: Mapping[str, Job], records: Iterable[dict[str, Any]]) -> None:
    """Write the table to `index`, and the pages of these records to its folder. A source is shown only if it is what was
    verified: a file that has changed since is left out."""
    folder = folder_of(index)
    folder.mkdir(exist_ok=True)
    links: list[str | None] = []

    def reports() -> Iterator[dict[str, Any]]:
        for record in records:
            job = jobs[record["id"]]
            path = folder / f"{job.id}.html"
            report = {**record["report"], "name": job.name}
            sources = (_source(job.candidate, job.candidate_sha256), _source(job.reference, job.reference_sha256))
            path.write_text(html.page(report, *sources, up=f"../{index.name}"), encoding="utf-8")
            links.append(f"{folder.name}/{path.name}")
            yield report

    kept = list(reports())
    index.write_text(html.index(kept, links), encoding="utf-8")


def _source(path: str, sha256: str) -> str | None:
    try:
        return html.read(path) if digest(Path(path)) == sha256 else None
    except OSError:
        return None
