"""While a worker lives, no process of this user can read or trace the tool: PR_SET_DUMPABLE is off."""

from __future__ import annotations

import threading

from . import sandbox

_lock = threading.Lock()
_holders = 0  # workers that live
_before = 1  # what was set before the first of them


def hold() -> None:
    global _holders, _before
    with _lock:
        if _holders == 0:
            _before = sandbox.prctl(sandbox.PR_GET_DUMPABLE)
            sandbox.prctl(sandbox.PR_SET_DUMPABLE, 0)
        _holders += 1


def release() -> None:
    """Undo one `hold`; after the last one, what was set before holds again."""
    global _holders
    with _lock:
        _holders -= 1
        if _holders == 0 and _before == 1:
            sandbox.prctl(sandbox.PR_SET_DUMPABLE, 1)
