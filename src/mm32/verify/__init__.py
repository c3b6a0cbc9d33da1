"""Proof of a claim about a kernel: a reference script against a candidate script. Same outputs? Faster?"""

from .entry import verify
from .report import Report
from .verdict import Verdict

__all__ = ["Report", "Verdict", "verify"]
