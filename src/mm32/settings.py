"""The environment variables that mm32 reads, and what MM32_DISABLE and MM32_LOG do. Only the standard library is imported.

MM32_DISABLE and MM32_LOG are read once, when mm32 is imported; MM32_CACHE_DIR by mm32/cuda/compile.py, whenever it is needed;
MM32_WORKSPACE_LIMIT when the limit is first asked for.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral

log = logging.getLogger("mm32")

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}
DEFAULT_LIMIT = 2 << 30  # bytes that a workspace may have by default
UNITS = {"": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
ON = ("1", "true", "yes", "on")
OFF_REASON = "MM32_DISABLE is set"


@dataclass(frozen=True)
class Setting:
    """An environment variable; it does nothing if it is unset or empty.

    `values`: those that it may have, None for any text. `read`: reads its text, and raises ValueError for a text that it cannot
    read; the code that needs the value gets that error.
    """

    name: str
    values: tuple[str, ...] | None = None
    read: Callable[[str], object] | None = None

    @property
    def text(self) -> str:
        """The variable's text, "" if it is not set."""
        return os.environ.get(self.name, "").strip()

    @property
    def unknown(self) -> str | None:
        """What is wrong with its value, or None."""
        if self.read is not None and self.text:
            try:
                self.read(self.text)
            except ValueError as error:
                return str(error)
        if self.values is None or self.text == "" or self.text.lower() in self.values:
            return None
        return f"{self.text!r} is not known and has no effect: it takes {', '.join(self.values)}"


def bytes_of(limit: int | str | None) -> int | None:
    """Return a limit in bytes, None for no limit. It may be given as a number of bytes, a text such as "512MiB" or "1.5 GiB", or
    "none" or None for no limit.

    Raises ValueError for anything else.
    """
    if limit is None or (isinstance(limit, str) and limit.strip().lower() == "none"):
        return None
    if isinstance(limit, Integral) and not isinstance(limit, bool) and limit >= 0:  # numpy's integers as well
        return int(limit)
    if isinstance(limit, str) and (found := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]ib|)\s*", limit.lower())):
        size = float(found[1]) * UNITS[found[2]] if "." in found[1] else int(found[1]) * UNITS[found[2]]
        if size == int(size):
            return int(size)
    raise ValueError(
        f"{limit!r} is not a workspace limit: give a number of bytes, a number with KiB, MiB, GiB or TiB such as '512MiB', "
        "or 'none' for no limit"
    )


CACHE_DIR = Setting("MM32_CACHE_DIR")
DISABLE = Setting("MM32_DISABLE", (*ON, "0", "false", "no", "off"))
LOG = Setting("MM32_LOG", tuple(LEVELS))
WORKSPACE_LIMIT = Setting("MM32_WORKSPACE_LIMIT", read=bytes_of)
SETTINGS = (CACHE_DIR, DISABLE, LOG, WORKSPACE_LIMIT)

_disabled = False


def disabled() -> str | None:
    """Return why mm32's own kernels are not to be used in this process, or None."""
    return OFF_REASON if _disabled else None


_limit: tuple[int | None] | None = None  # the limit in a tuple, once it was set or read


def read_limit() -> int | None:
    """The most bytes that a product's workspace may have, None for no limit: what was set last, MM32_WORKSPACE_LIMIT, or 2 GiB.

    Raises ValueError if the variable's value cannot be read.
    """
    global _limit
    if _limit is None:
        text = WORKSPACE_LIMIT.text
        try:
            _limit = (bytes_of(text) if text else DEFAULT_LIMIT,)
        except ValueError as error:
            said = f"{WORKSPACE_LIMIT.name}={error}"
            raise ValueError(said) from None
    return _limit[0]


def store_limit(limit: int | str | None) -> None:
    """Set what `read_limit` returns from now on. `mm32.set_workspace_limit` also forgets the plans that were made with another
    limit. Raises ValueError as `bytes_of` does."""
    global _limit
    _limit = (bytes_of(limit),)


def apply() -> None:
    """Do what the variables ask for; `import mm32` calls this. A warning in the log "mm32" names a value that is not known."""
    global _disabled
    _disabled = DISABLE.text.lower() in ON
    level = LEVELS.get(LOG.text.lower())
    if level is not None:
        _show(level)
    for setting in SETTINGS:
        if setting.unknown:
            log.warning("%s=%s", setting.name, setting.unknown)


def _show(level: int) -> None:
    """Send the lines of the log "mm32" from this level on to standard error, and not to the root logger's handlers as well."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s: %(message)s"))
    log.addHandler(handler)
    log.setLevel(level)
    log.propagate = False
