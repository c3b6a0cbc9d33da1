"""The fixtures that tests of mm32.verify share (tests/support/verify/)."""

from __future__ import annotations

from support.verify.fixtures import leftovers, run, short_windows, whole_windows, write  # noqa: F401
from support.verify.shortcuts import verdict  # noqa: F401
