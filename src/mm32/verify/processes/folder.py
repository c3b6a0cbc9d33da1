"""A worker's folder: its home, its temporary files and all its caches."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sysconfig
import tempfile
from pathlib import Path

from .launch import environment


def new_folder(role: str) -> str:
    """Make an empty folder of this user's for a process, and return its path."""
    return os.path.realpath(tempfile.mkdtemp(prefix=f"mm32-verify-{role}-"))


def is_ours(folder: str | Path) -> bool:
    """Return whether `folder` is still a folder of this user's: an unconfined process may have put something in its place."""
    with contextlib.suppress(OSError):
        found = os.lstat(folder)
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return False


def variables(folder: Path) -> dict[str, str]:
    """Return the worker's environment variables: the usual ones, with every cache and temporary folder inside `folder`."""
    env = environment()
    env["PATH"] = os.pathsep.join([env.get("PATH", os.defpath), sysconfig.get_path("scripts")])
    env["USER"] = env["LOGNAME"] = "mm32-verify"  # it may be a user that has no name
    for name in ("HOME", "TMPDIR", "TEMP", "TMP"):
        env[name] = str(folder)
    for name in ("XDG_CACHE_HOME", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        env[name] = str(folder / "cache" / name.lower())
    env["CUDA_CACHE_PATH"] = str(folder / "cache" / "cuda")
    return env


def take_back(folder: Path) -> None:
    """Empty a folder and make it this user's again. A link that the worker has put in its place stays."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            with contextlib.suppress(OSError):
                os.fchown(fd, os.geteuid(), os.getegid())
            os.fchmod(fd, 0o700)
        finally:
            os.close(fd)
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)
