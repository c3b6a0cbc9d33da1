"""The program of the reference's process: all that a worker does, and the requests that only the trusted reference gets.

The reference makes the inputs, the parameters and the probes' data, and gives the truth: its own result in float64, the
gauge of errors, and results computed wrongly on purpose. No candidate is loaded here. This is the only package outside
worker/ that imports worker/: the reference has to run the same code as the candidate, or their times would not compare.
The tool's own process never imports this package; processes/ starts it.

    runner     the script, the model and its state, its inputs
    examiner   what the model is: a product or not, what it draws, which state a call changes
    float64    its truth, and results computed wrongly on purpose
    varied     other inputs and parameters, for probes
    traits     what its operators tell: which probes would show something
    constants  the integers that its script divides by and compares with
    freedom    what the model leaves open about NaN and Inf
    lines      the statements of its script that no compared call has run
"""

from __future__ import annotations

from ..worker import main as worker
from .runner import ReferenceRunner

__all__ = ["ReferenceRunner", "main"]


def main(arguments: list[str]) -> None:
    worker.main(arguments, ReferenceRunner)
