"""The environment variables that mm32 reads, and what MM32_DISABLE and MM32_LOG do. Only the standard library is imported.

MM32_DISABLE and MM32_LOG are read once, when mm32 is imported; MM32_CACHE_DIR by mm32/cuda/compile.py, whenever it is needed.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

log = logging.getLogger("mm32")

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}
OFF_REASON = "MM32_DISABLE=1 is set"


@dataclass(frozen=True)
class Setting:
    """An environment variable. `values` are those that it may have, None if any text is one; unset or empty, it does nothing."""

    name: str
    values: tuple[str, ...] | None = None

    @property
    def text(self) -> str:
        """As it is set, "" where it is not."""
        return os.environ.get(self.name, "").strip()

    @property
    def unknown(self) -> str | None:
        """Why its value is none that it may have, or None."""
        if self.values is None or self.text == "" or self.text.lower() in self.values:
            return None
        return f"{self.text!r} is not known and has no effect: it takes {', '.join(self.values)}"


CACHE_DIR = Setting("MM32_CACHE_DIR")
DISABLE = Setting("MM32_DISABLE", ("1", "0"))
LOG = Setting("MM32_LOG", tuple(LEVELS))
SETTINGS = (CACHE_DIR, DISABLE, LOG)

_disabled = False


def disabled() -> str | None:
    """Why mm32's own kernels are not to be used in this process, or None."""
    return OFF_REASON if _disabled else None


def apply() -> None:
    """Does what the variables ask for; `import mm32` calls it. A warning in the log "mm32" names a value that is not known."""
    global _disabled
    _disabled = DISABLE.text == "1"
    level = LEVELS.get(LOG.text.lower())
    if level is not None:
        _show(level)
    for setting in SETTINGS:
        if setting.unknown:
            log.warning("%s=%s", setting.name, setting.unknown)


def _show(level: int) -> None:
    """Lines of the log "mm32" from this level on go to standard error, once: not to the root logger's handlers as well."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s: %(message)s"))
    log.addHandler(handler)
    log.setLevel(level)
    log.propagate = False
