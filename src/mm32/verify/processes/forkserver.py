"""The program of the process that workers are forked from: it has imported torch, and nothing of a script.

Importing torch takes two seconds; forking a process that has imported it takes some milliseconds. The server must not have used
CUDA, which does not survive a fork. It checks that, and ends if CUDA has been used; launch.py then starts a server for each
worker that imports nothing beforehand.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import socket
import warnings

from . import sandbox, supervisor
from .launch import UNFIT

NOT_INITIALIZED = 3  # CUDA_ERROR_NOT_INITIALIZED


def main(arguments: list[str]) -> None:
    """Serve on the socket of descriptor arguments[0] until it closes, with the modules of the JSON list arguments[1] imported."""
    sandbox.prctl(sandbox.PR_SET_DUMPABLE, 0)
    sandbox.prctl(sandbox.PR_SET_CHILD_SUBREAPER, 1)
    sock = socket.socket(fileno=int(arguments[0]))
    sock.set_inheritable(False)
    for name in json.loads(arguments[1]):
        importlib.import_module(name)
    if uses_cuda():
        os._exit(UNFIT)
    # Python warns of threads at a fork. Those of a BLAS library wait for work, and the library starts them anew in the child.
    warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        order, fds, _, _ = socket.recv_fds(sock, 1 << 20, 4)
        if not order:
            os._exit(0)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            sock.close()
            supervisor.start(json.loads(order), list(fds))
        for fd in fds:
            os.close(fd)


def uses_cuda() -> bool:
    """Return whether this process has initialised CUDA."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return False  # not even loaded
    return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != NOT_INITIALIZED)


def _reap(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
