"""A headless Chromium for tests, over the DevTools protocol on a pipe: no dependency, no driver, no port.

https://chromedevtools.github.io/devtools-protocol/ lists the methods. Messages are JSON, each ended by a NUL byte. Run as a
program, this file prints the path of the browser, and exits with 1 if there is none.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# Keeps the browser from doing anything unasked: looking for updates, reporting, fetching lists.
QUIET = (
    "--headless --disable-gpu --disable-dev-shm-usage --no-first-run --no-default-browser-check --disable-background-networking "
    "--disable-component-update --disable-sync --disable-extensions --disable-quic "
    "--disable-features=DialMediaRouteProvider,OptimizationHints --mute-audio"
)
# Chromium reads commands from descriptor 3 and answers on 4.
START = """import os, sys
read, write = (os.dup(int(descriptor)) for descriptor in sys.argv[1:3])
for target, source in ((3, read), (4, write)):
    os.dup2(source, target)
    os.set_inheritable(target, True)
os.execv(sys.argv[3], sys.argv[3:])"""
TIMEOUT = 30.0  # the most seconds that one answer may take


def find() -> str | None:
    """Return the path of a Chromium, or None if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser process; `open` returns pages. A context manager."""

    def __init__(self, program: str):
        self.folder = tempfile.mkdtemp(prefix="browser-")
        ours, self.out = os.pipe()
        self.into, theirs = os.pipe()
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        command = [program, *QUIET.split(), *sandbox, f"--user-data-dir={self.folder}", "--remote-debugging-pipe"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, str(ours), str(theirs), *command, "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(ours, theirs),
            start_new_session=True,
        )
        os.close(ours)
        os.close(theirs)
        self.last, self.rest = 0, b""
        self.events: list[dict[str, Any]] = []

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Call a method and return its result. Events that arrive meanwhile are kept in `events`."""
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + TIMEOUT
        while (answer := self._next(end)).get("id") != self.last:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _next(self, end: float) -> dict[str, Any]:
        """Return the next message, waiting for it until `end`."""
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.into], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"the browser did not answer in {TIMEOUT:.0f} s")
            read = os.read(self.into, 1 << 20)
            if not read:
                raise RuntimeError("the browser has ended")
            self.rest += read
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def open(
        self, at: Path | str, width: int = 1280, height: int = 900, dark: bool = False, script: bool = True
    ) -> Page:
        return Page(self, at, width, height, dark, script)

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.ask("Browser.close")
            self.process.wait(10)
        except (RuntimeError, TimeoutError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        for descriptor in (self.out, self.into):
            os.close(descriptor)
        shutil.rmtree(self.folder, ignore_errors=True)


class Page:
    """A loaded file or address, shown at a size in CSS pixels; `errors`: what its console reported. A context manager."""

    def __init__(self, browser: Browser, at: Path | str, width: int, height: int, dark: bool, script: bool):
        self.browser = browser
        self.target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.ask("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.resize(width, height, dark)
        self.ask("Emulation.setScriptExecutionDisabled", value=not script)
        self.ask("Page.navigate", url=at if isinstance(at, str) else at.as_uri())
        begin = time.monotonic()
        while not self._seen("Page.loadEventFired"):
            if time.monotonic() - begin > TIMEOUT:
                raise TimeoutError(f"{at} did not load")
            browser.ask("Browser.getVersion")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.ask(method, self.session, **parameters)

    def resize(self, width: int, height: int = 900, dark: bool = False) -> None:
        """Set the size, in CSS pixels, and whether the system's colours are dark."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[theme])

    def _seen(self, method: str) -> list[dict[str, Any]]:
        return [
            e["params"] for e in self.browser.events if e.get("sessionId") == self.session and e.get("method") == method
        ]

    @property
    def errors(self) -> list[str]:
        """Exceptions, dialogs, calls of the console, and what the browser logs itself, such as violations of the policy."""
        self.value("0")  # once this is answered, all earlier events have arrived
        found = [str(e["exceptionDetails"].get("text")) for e in self._seen("Runtime.exceptionThrown")]
        found += [f"{e['entry']['level']}: {e['entry']['text']}" for e in self._seen("Log.entryAdded")]
        found += [f"console.{e['type']}" for e in self._seen("Runtime.consoleAPICalled")]
        return found + [f"dialog: {e['message']}" for e in self._seen("Page.javascriptDialogOpening")]

    @property
    def requests(self) -> list[str]:
        """The addresses that were requested, except the page's own and data: URLs."""
        self.value("0")  # once this is answered, all earlier events have arrived
        urls = [e["request"]["url"] for e in self._seen("Network.requestWillBeSent") if e.get("type") != "Document"]
        return [url for url in urls if not url.startswith("data:")]

    def value(self, code: str) -> Any:
        """Return the value of a JavaScript expression, by way of JSON."""
        done = self.ask("Runtime.evaluate", expression=code, returnByValue=True)
        if "exceptionDetails" in done:
            raise RuntimeError(str(done["exceptionDetails"].get("exception", {}).get("description")))
        return done["result"].get("value")

    def screenshot(self, path: Path, whole: bool = True) -> None:
        made = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(made["data"]))

    def pdf(self) -> bytes:
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=True)["data"])

    def __enter__(self) -> Page:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.browser.ask("Target.closeTarget", targetId=self.target)


if __name__ == "__main__":
    print(find() or "no Chromium on the PATH")
    sys.exit(find() is None)
