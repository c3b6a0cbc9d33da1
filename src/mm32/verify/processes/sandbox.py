"""What a candidate's process may see and do: namespaces, a user and a view of the file system of its own, limits.

Linux gives each of these only where the system allows it: to root with CAP_SYS_ADMIN, to an ordinary user through a user
namespace, in many containers not at all. So each step says whether it was taken, and the report has a word for each that was.
`enter` is called in the process that becomes the parent of the namespaces' first process, `restrict_view` in that first
process, `confine` in the worker itself; see supervisor.py for the order. Only system calls are used: no tool like bubblewrap
has to be installed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import stat
import time
from collections.abc import Iterable
from pathlib import Path

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = (
    0x00020000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 1, 3, 4, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1

# User numbers that no account has: far above what systems give out, or, where a container maps fewer, below 65534 (nobody).
FIRST_USERS, USERS = (1_879_048_192, 40_000), 20_000
FOLDER_BYTES = 8 << 30  # of what a candidate may write at most; the files are in memory where it has a view of its own
SHARED_BYTES = 8 << 30  # the size of /dev/shm
COPIED_BYTES = 64 << 20  # of files beside a script that are copied at most, where no other user may read them
FILE_BYTES = 8 << 30
CUDA_START = 60.0  # seconds that CUDA may take to start
# The report's word for each namespace. Each takes a separate call, so that one that is refused does not cost the others.
PID_NAMESPACE = "PID namespace"
NAMESPACES = ((CLONE_NEWPID, PID_NAMESPACE), (CLONE_NEWNET, "no network"), (CLONE_NEWIPC, "IPC namespace"))
VIEW, USER, CAPABILITIES = "read-only files", "another user", "no capabilities"

_libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """A step that was begun could not be finished; the process is of no use, and another has to be made, confined less."""


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def prctl(option: int, value: int = 0) -> int:
    """prctl(2) with one argument; -1 where the kernel does not know the option."""
    return int(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


def _unshare(flags: int) -> None:
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    _check(_libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]), f"mount {target}")


class _Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


def _set_read_only(path: str, on: bool) -> None:
    """Make the mount at `path` read-only, with all that is mounted below it; if not `on`, make that mount alone writable."""
    attributes = _Attributes(set=MOUNT_ATTR_RDONLY) if on else _Attributes(clear=MOUNT_ATTR_RDONLY)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    flags = ctypes.c_uint(AT_RECURSIVE if on else 0)
    result = _libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, os.fsencode(path), flags, ctypes.byref(attributes), size)
    _check(result, f"mount_setattr {path}")


# ---------------------------------------------------------------------------------------------------------- namespaces


def enter(mounts: bool) -> tuple[list[str], bool]:
    """Move this process into namespaces of its own; its next child is the first of its PID namespace.

    Returns the report's words for the namespaces that it has got, and whether its view of the file system can be changed. The
    process must have one thread.
    """
    if not _try(CLONE_NEWNS):
        user, group = os.geteuid(), os.getegid()
        prctl(PR_SET_DUMPABLE, 1)  # otherwise the files in /proc/self are root's
        if not _try(CLONE_NEWUSER):
            return [], False
        try:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        except OSError as error:
            raise Refused(f"the user namespace's map: {error}") from error
        finally:
            prctl(PR_SET_DUMPABLE, 0)
        mounts = _try(CLONE_NEWNS) and mounts
    return [word for flag, word in NAMESPACES if _try(flag)], mounts


def _try(flag: int) -> bool:
    try:
        _unshare(flag)
    except OSError:
        return False
    return True


def own_user() -> int | None:
    """Return the number of a user that nobody else is; None where this process may not become such a user.

    It may if it is root and has the number mapped."""
    if os.geteuid() != 0:
        return None
    try:
        ranges = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    except OSError:
        return None
    start = int.from_bytes(os.urandom(4), "little") % USERS
    for first in FIRST_USERS:
        if any(inside <= first and first + USERS <= inside + count for inside, _, count in ranges):
            return first + start
    return None


# ---------------------------------------------------------------------------------------------------------- files


def restrict_view(
    folder: str, temporary: Iterable[str], needed: Iterable[str], script: str, hidden: str, user: int | None
) -> None:
    """Give this mount namespace a view of its own: everything is read-only except empty temporary folders and /dev/shm.

    `folder`: the worker's folder, in one of the folders `temporary`; `needed`: paths that it reads; `script`: its script, which
    comes with the files beside it; `hidden`: a file that then reads as empty. Where another `user` may not pass a folder on the
    way to any of these (a home folder, say), that folder then holds nothing else. Raises OSError.
    """
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    if os.getpid() == 1:
        _own_proc()
    beside = os.path.dirname(script)
    kept = {os.path.realpath(path) for path in needed if os.path.exists(path)}
    writable = {os.path.realpath(path) for path in ("/tmp", *temporary) if os.path.isdir(path)}
    kept -= writable  # a temporary folder on the search path
    kept |= {os.path.realpath(beside)} if beside else set()
    roots = writable | {"/run/user"} if os.path.isdir("/run/user") else set(writable)
    if user is not None:
        roots |= {closed for path in kept if (closed := _closed_parent(path)) is not None}
    os.umask(0o022)
    outer = [root for root in sorted(roots) if not any(_inside(root, other) for other in roots if other != root)]
    for root in outer:
        _cover(root, [path for path in kept if _inside(path, root)], root in writable, script, hidden, user)
    os.makedirs(folder, exist_ok=True)
    _mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={SHARED_BYTES}")
    if hidden and os.path.exists(hidden):
        _mount("/dev/null", hidden, None, MS_BIND)
    _set_read_only("/", True)
    for path in ["/proc", "/dev/shm", *(root for root in outer if root in writable)]:
        _set_read_only(path, False)
    if user is not None:
        os.chown(folder, user, user)
    os.chmod(folder, 0o700)


def _own_proc() -> None:
    """Mount a /proc that shows only this PID namespace; a driver's files in it stay as they were (a container may mask some)."""
    driver = None
    with contextlib.suppress(OSError):
        driver = os.open("/proc/driver", os.O_PATH)
    # Refused where parts of /proc are masked: then other processes are seen, by name only.
    with contextlib.suppress(OSError):
        _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        if driver is not None:
            _mount(f"/proc/self/fd/{driver}", "/proc/driver", None, MS_BIND | MS_REC)
    if driver is not None:
        os.close(driver)


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _closed_parent(path: str) -> str | None:
    """Return the first folder on the way to `path` that another user may not pass."""
    parents = [str(parent) for parent in reversed(Path(path).parents)]
    return next((parent for parent in parents if not os.stat(parent).st_mode & stat.S_IXOTH), None)


def _readable(path: str, user: int | None) -> bool:
    mode = os.stat(path).st_mode
    wanted = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
    return user is None or mode & wanted == wanted


def _cover(root: str, kept: list[str], writable: bool, script: str, hidden: str, user: int | None) -> None:
    """Cover `root` with an empty folder, and put into that the paths of `root` that are kept."""
    beside = os.path.realpath(os.path.dirname(script))
    kept = [path for path in kept if not any(_inside(path, other) for other in kept if other not in (path, root))]
    found = {path: os.open(path, os.O_PATH) for path in kept}
    copied = (
        _files_beside(script, hidden) if beside in kept and (beside == root or not _readable(beside, user)) else None
    )
    mode, size = ("1777", FOLDER_BYTES) if writable else ("755", 1 << 20)
    _mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, f"mode={mode},size={size}")
    for path, descriptor in found.items():
        if path == beside and copied is not None:
            os.makedirs(path, exist_ok=True)
            for name, content in copied.items():
                Path(path, name).write_bytes(content)
                os.chmod(os.path.join(path, name), 0o644)
        elif os.path.isdir(f"/proc/self/fd/{descriptor}"):
            os.makedirs(path, exist_ok=True)
            _mount(f"/proc/self/fd/{descriptor}", path, None, MS_BIND | MS_REC)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            Path(path).touch()
            _mount(f"/proc/self/fd/{descriptor}", path, None, MS_BIND)
        os.close(descriptor)


def _files_beside(script: str, hidden: str) -> dict[str, bytes]:
    """Return the script and the files beside it, which it may import, as far as they are small; without the file `hidden`."""
    found, left = {}, COPIED_BYTES
    first = [script, *sorted(map(str, Path(script).parent.iterdir()))]
    for path in dict.fromkeys(first):
        if path == hidden or not os.path.isfile(path) or os.path.getsize(path) > left:
            continue
        found[os.path.basename(path)] = content = Path(path).read_bytes()
        left -= len(content)
    return found


# ---------------------------------------------------------------------------------------------------------- the worker


def confine(user: int | None, groups: Iterable[int], processes: int) -> list[str]:
    """Give up this process's rights: its user, capabilities, core files, files above 8 GiB, new privileges.

    `user`: the user that it becomes, if any, with the supplementary `groups` (those of the devices); `processes` then bounds
    how many processes and threads that user may have. Returns the words for the report. Raises OSError.
    """
    words = []
    prctl(PR_SET_DUMPABLE, 1)  # otherwise the files in its /proc are root's; it has nothing to hide from itself
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("600")  # a system that lacks memory ends this one, not the tool
    for number in range(64):
        if prctl(PR_CAPBSET_DROP, number) != 0:
            break
    if user is not None:
        resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
        os.setgroups(list(groups))
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        words.append(USER)
    if _drop_capabilities():
        words.append(CAPABILITIES)
    limit()
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_DUMPABLE, 1)  # a change of user took it away
    return words


def _drop_capabilities() -> bool:
    number = SYS_CAPSET.get(os.uname().machine)
    if number is None:
        return False
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this thread
    return bool(_libc.syscall(number, header, (ctypes.c_uint32 * 6)()) == 0)


def limit() -> None:
    """Set what holds for every worker: it writes no core file and no file above 8 GiB, and ends with its parent."""
    for what, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, FILE_BYTES)):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (most, most))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def device_groups() -> list[int]:
    """Return the groups that may use the GPUs, where not everyone may."""
    found = set()
    for path in Path("/dev").glob("nvidia*"):
        with contextlib.suppress(OSError):
            mode = path.stat()
            if stat.S_ISCHR(mode.st_mode) and not mode.st_mode & stat.S_IWOTH:
                found.add(mode.st_gid)
    return sorted(found)


def check_access(paths: Iterable[str]) -> None:
    """Check that this process, as it is now, can read `paths` and use the GPUs. Raises Refused with the path that it cannot."""
    for path in paths:
        if not os.access(path, os.R_OK):
            raise Refused(f"{path} cannot be read")
    for path in ("/dev/nvidiactl", "/dev/nvidia-uvm"):
        if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK):
            raise Refused(f"{path} cannot be used")


def check_cuda() -> None:
    """Check that CUDA starts in a process like this one. Raises Refused.

    This is tried in a child, since this process itself will use CUDA."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            driver, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
            steps = (
                lambda: driver.cuInit(0),
                lambda: driver.cuDeviceGet(ctypes.byref(device), 0),
                lambda: driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
            )
            code = 0 if all(step() == 0 for step in steps) else 1
        finally:
            os._exit(code)
    end = time.monotonic() + CUDA_START
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid == child:
            if status == 0:
                return
            break
        time.sleep(0.01)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    raise Refused("CUDA does not start in it")
