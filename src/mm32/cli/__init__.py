"""The command line: parse, call, print. Nothing is decided here.

    app        the commands together, and env
    verify     verify and demo
    products   export, explain and bench
    cache      the cache of compiled kernels

The commands need the extra `cli`; without it `mm32` says how to install that.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

INSTALLED = all(find_spec(name) for name in ("rich", "typer"))
if INSTALLED:
    from .app import app as app


def main() -> None:
    """Entry point of the `mm32` command."""
    if not INSTALLED:
        from mm32.install import pip_install

        print(f"mm32's command line needs: {pip_install('cli')}", file=sys.stderr)
        raise SystemExit(2)
    import signal

    # Closing the terminal or ending the job is like Ctrl-C: the candidate's processes are ended as well.
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, interrupt)
    for stream in (sys.stdout, sys.stderr):  # an encoding without µ must not end a command
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        app()
    except (KeyboardInterrupt, SystemExit) as stop:
        # Typer itself turns an interrupt into exit code 130 without a message.
        if isinstance(stop, SystemExit) and stop.code != 130:
            raise
        print("mm32: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    except Exception as error:
        import traceback

        import mm32
        from mm32 import error_page

        if isinstance(error, ImportError) and mm32._failure is not None:
            print(
                f"mm32: this needs torch, and that failed: {mm32._failure} (`mm32 env` shows what is missing)",
                file=sys.stderr,
            )
            raise SystemExit(1) from None
        traceback.print_exc()
        if said := error_page.pointer(str(error)):
            print(f"mm32: {said}", file=sys.stderr)
        raise SystemExit(1) from None
