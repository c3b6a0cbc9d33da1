"""The fixtures of conftest_verify.py, which test modules also import scripts from."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from conftest_verify import leftovers, run, short_windows, whole_windows, write  # noqa: F401

from verify.shortcuts import verdict  # noqa: F401
