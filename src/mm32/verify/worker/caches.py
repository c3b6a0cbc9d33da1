"""What a candidate's build left in its caches, carried from the process that built ahead to the one that is judged.

Both ends are the candidate's own processes. The tool passes the bytes on and never looks into them.
"""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import torch
from torch import Tensor

# ninja compares times of files with those in its log to the nanosecond, which tarfile's own field cannot hold.
TIME = "MM32.mtime_ns"


def _folder() -> Path:
    """The folder of all caches, as processes/folder.py lays them out."""
    return Path(os.environ["XDG_CACHE_HOME"]).parent


def pack(limit: int) -> Tensor | None:
    """Return the caches as bytes; None where there is nothing in them, or more than `limit` bytes."""
    folder = _folder()
    if not any(path.is_file() for path in folder.rglob("*")):
        return None
    buffer = io.BytesIO()

    def timed(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.pax_headers = {TIME: str(os.lstat(folder / member.name).st_mtime_ns)}
        return member

    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.add(folder, arcname=".", filter=timed)
    if buffer.tell() > limit:
        return None
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def unpack(packed: Tensor) -> None:
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(packed.numpy().tobytes())) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:
            archive.extractall(folder)
        for member in archive.getmembers():
            if member.isfile() and TIME in member.pax_headers:
                time = int(member.pax_headers[TIME])
                os.utime(folder / member.name, ns=(time, time))
