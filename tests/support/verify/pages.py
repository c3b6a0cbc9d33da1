"""A report as the page that a terminal would show."""

from __future__ import annotations

import io

from rich.console import Console

from mm32.verify import Report
from mm32.verify.page import Page


def page(report: Report, terminal: bool = False, width: int = 80) -> str:
    file = io.StringIO()
    Page(report, Console(file=file, force_terminal=terminal, color_system=None, width=width)).print()
    return file.getvalue()
