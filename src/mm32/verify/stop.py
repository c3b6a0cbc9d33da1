"""The exception with which a stage ends a verification."""

from __future__ import annotations

from typing import Any

from .verdict import Verdict


class Stop(Exception):
    """Raised when the verdict is known."""

    def __init__(self, verdict: Verdict, reason: str, error: dict[str, Any] | None = None):
        super().__init__(reason)
        self.verdict = verdict
        self.reason = reason
        self.error = error or {}
