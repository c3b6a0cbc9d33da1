"""What to do about exceptions that honest scripts raise here and nowhere else: sentences of the tool's own, for its reasons.

A script's process may have chosen the exception's type and its message, which only select a sentence. Mistakes in builds have
hints of their own (worker/build_errors.py)."""

from __future__ import annotations

import re

# An exception's type, a regular expression on its message, and the hint.
HINTS: tuple[tuple[str, str, str], ...] = (
    (
        "RuntimeError",
        r"does not require grad and does not have a grad_fn|differentiated Tensors does not require grad",
        "forward is called under torch.no_grad(): wrap what needs gradients in `with torch.enable_grad():`, and let an input "
        "require them by x.detach().requires_grad_()",
    ),
    (
        "FileNotFoundError",
        r"No such file or directory: '(?!/)",
        "scripts run in an empty folder: open a file beside the script by os.path.join(os.path.dirname(__file__), name)",
    ),
    (
        "ValueError",
        r"batch_sizes should always be on CPU",
        "inputs are moved to the GPU whole: give padded values and their lengths, and pack them in forward",
    ),
)
NO_REFERENCE = "a candidate cannot import the reference, which is hidden from it: copy what it needs"


def hint(type_name: str, message: str, role: str, reference: str) -> str:
    """Return what to do about an exception in the process of `role`; empty if nothing is known. `reference`: the name of
    its module."""
    if role == "candidate" and type_name in ("ModuleNotFoundError", "ImportError"):
        meant = f"No module named {reference!r}" in message or f"from {reference!r}" in message
        return NO_REFERENCE if meant else ""
    found = (said for of, pattern, said in HINTS if of == type_name and re.search(pattern, message))
    return next(found, "")
