"""Files of JSON lines: a header, then one record a line, each on the disk before the next step is taken.

If a process is ended while it writes a line, that line is torn: it is the last one of its file, and is left out. A file has one
writer, which never opens it again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mm32

from ..report import SCHEMA as REPORT_SCHEMA
from ..report import Report
from ..verdict import Verdict

SCHEMA = "mm32.verify.batch/1"


def header(**fields: Any) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": "header",
        "mm32": mm32.__version__,
        "report_schema": REPORT_SCHEMA,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **fields,
    }


class Lines:
    """A file that is written line by line. `append` returns when the line is on the disk."""

    def __init__(self, path: Path, **fields: Any):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self.path = path
        self.fd = os.open(path, flags, 0o600)
        self.append(header(**fields))
        sync_folder(path.parent)

    def append(self, record: dict[str, Any]) -> None:
        data = (json.dumps(record, allow_nan=False) + "\n").encode()
        while data:
            data = data[os.write(self.fd, data) :]
        os.fsync(self.fd)

    def close(self) -> None:
        os.close(self.fd)


class Reader:
    """Reads what is new in a file of lines since the last look."""

    def __init__(self, path: Path):
        self.path = path
        self.at = 0
        self.version = ""  # of mm32, as the header says

    def new(self) -> Iterator[dict[str, Any]]:
        """Yield new records, whole ones only; a line without an end may still be being written, and is looked at again later."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.at)
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    self.at += len(line)
                    with contextlib.suppress(ValueError):
                        record = json.loads(line)
                        if not isinstance(record, dict):
                            continue
                        if record.get("kind") == "header":
                            self.version = str(record.get("mm32", ""))
                        else:
                            yield record
        except FileNotFoundError:
            return


def sync_folder(folder: Path) -> None:
    """Make sure that the names in a folder are on the disk, where the file system can do that."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def write_whole(path: Path, text: str) -> None:
    """Replace a file at once: a reader finds all of the new text, or the file as it was. A link stays one, and what is no file,
    such as a pipe or /dev/null, is written to."""
    path = Path(os.path.realpath(path)) if path.is_symlink() and not str(path).startswith("/dev/") else path
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def report_of(record: dict[str, Any]) -> Report:
    """Return the report that a record holds. Values that were NaN or infinite are the strings that stand for them in JSON."""
    found = record["report"]
    names = {field.name for field in dataclasses.fields(Report)}
    report = Report(**{name: value for name, value in found.items() if name in names and name != "verdict"})
    report.verdict = Verdict[found["verdict"]]
    return report
