"""What a worker prints: read all the time, so that it never waits for a reader, and kept in part."""

from __future__ import annotations

import contextlib
import os
import threading

KEPT = 32 << 10  # bytes that are kept of the beginning, and of the end


class Drain(threading.Thread):
    """Reads what a worker prints into a pipe, and keeps the first and the last 32 KiB of it."""

    def __init__(self, fd: int):
        super().__init__(daemon=True)
        self.fd = fd
        self.total = 0
        self.head = b""
        self.tail = b""
        self.start()

    def run(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(self.fd, 1 << 16):
                self.total += len(data)
                room = KEPT - len(self.head)
                self.head += data[:room] if room > 0 else b""
                rest = data[max(room, 0) :]
                self.tail = (self.tail + rest)[-KEPT:]

    def text(self) -> str:
        dropped = self.total - len(self.head) - len(self.tail)
        middle = f"\n[... {dropped} bytes left out ...]\n".encode() if dropped > 0 else b""
        return (self.head + middle + self.tail).decode(errors="replace")

    def close(self) -> None:
        """Close the pipe, unless somebody still holds its other end: then the thread goes on reading."""
        self.join(0.5)
        with contextlib.suppress(OSError):
            if not self.is_alive():
                os.close(self.fd)
