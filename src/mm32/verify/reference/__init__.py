"""The program of the reference's process: what a worker does, and what only the trusted reference is asked.

The reference makes the inputs, the parameters and the probes' data, and gives the truth: its own result in float64, the
gauge of errors, and results computed wrongly on purpose. No candidate is loaded here. This is the one package outside of
worker/ that imports it: the reference has to run by the same code as the candidate, or their times would not compare.
The tool's own process never imports this package; process.py starts it.

    runner     the model, its inputs, its truth
    varied     other inputs and parameters, for probes
    constants  what its script divides integers by, and compares them with
    freedom    what it leaves open about NaN and Inf
    lines      which of its statements no compared call has run
"""

from __future__ import annotations

from ..worker import main as worker
from .runner import ReferenceRunner

__all__ = ["ReferenceRunner", "main"]


def main(arguments: list[str]) -> None:
    worker.main(arguments, ReferenceRunner)
