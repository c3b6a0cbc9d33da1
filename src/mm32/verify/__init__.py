"""Proof of a claim about a kernel: a reference script against a candidate script. Same outputs? Faster?"""

from .report import Report
from .session import verify
from .verdict import Verdict

__all__ = ["Report", "Verdict", "verify"]
