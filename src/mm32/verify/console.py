"""Writing to a terminal, a file or a pipe. If the other end of a pipe is closed, the rest of the text is lost, and nothing else:
the exit code stays that of the verdict."""

from __future__ import annotations

import os
import sys
from typing import TextIO

import rich.console


class Console(rich.console.Console):
    def on_broken_pipe(self) -> None:
        """Rich would end the command with code 1, which means "same, slower"."""
        self.quiet = True
        _lose(sys.stderr if self.stderr else sys.stdout)


def write(text: str) -> None:
    """Write to standard output."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _lose(sys.stdout)


def _lose(stream: TextIO) -> None:
    """Let a stream lead nowhere, so that what is left in its buffer raises no error at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
