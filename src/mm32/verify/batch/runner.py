"""The program that verifies one job after another on one card. It is a process of its own: if CUDA breaks, a new one is started.

It imports torch once, and keeps its fork server and the reference's truths from one candidate to the next. It reads jobs from a
socket and writes lines of JSON to it: progress, then the result. When the socket closes, it ends whatever it does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Any

from ..processes import launch

LINES = 4096
EVERY = 0.5  # seconds between two lines of progress


def main(arguments: list[str]) -> None:
    """Serve on the socket with descriptor arguments[0]; arguments[1] has the architectures that extensions are built for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker handles an interrupt from the keyboard
    signal.signal(signal.SIGTERM, _end)
    sock = socket.socket(fileno=int(arguments[0]))
    sock.set_inheritable(False)
    jobs = sock.makefile("r", encoding="utf-8")
    lock = threading.Lock()

    def say(**said: Any) -> None:
        with lock:
            try:
                sock.sendall((json.dumps(said) + "\n").encode())
            except OSError:
                raise KeyboardInterrupt from None

    inbox: list[str] = []
    arrived = threading.Condition()

    def read() -> None:
        for line in jobs:
            with arrived:
                inbox.append(line)
                arrived.notify()
        os.kill(os.getpid(), signal.SIGTERM)  # the worker has gone

    left = contextlib.ExitStack()  # what is to be ended
    try:
        from .ahead import Built
        from .jobs import Job
        from .judged import verify_job
        from .spares import Spares
        from .truths import Truths

        launch.shared()
        truths = Truths()
        spares = left.enter_context(contextlib.closing(Spares()))
        threading.Thread(target=read, daemon=True).start()
        say(ready=os.getpid())
        while True:
            with arrived:
                while not inbox:
                    arrived.wait(1.0)  # not for longer at once, or a signal would not be seen
                order = json.loads(inbox.pop(0))
            last = 0.0

            def progress(text: str) -> None:
                nonlocal last
                if time.monotonic() - last > EVERY:
                    last = time.monotonic()
                    say(progress=text)

            try:
                report, suspicious, short = verify_job(
                    Job(**order["job"]), Built(**order["built"]), arguments[1], truths, spares, progress
                )
                say(report=report.as_dict(), suspicious=suspicious, short=short)
            except Exception as error:
                last_line = f"{type(error).__name__}: {error}"
                say(error=last_line[:2000], traceback=traceback.format_exc()[-LINES:])
                if "CUDA" in last_line:
                    break  # CUDA stays broken in a process where it has failed
    except KeyboardInterrupt:
        pass
    finally:
        left.close()
        sys.stdout.flush()


def _end(*_: object) -> None:
    raise KeyboardInterrupt
