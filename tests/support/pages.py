"""The site of `make docs` in a headless Chromium: what is cut, crowded or missing on its pages.

As a program, in tests/, `python -m support.pages [FOLDER]` builds the site, opens each page 1280 and 400 pixels wide, light and
dark, prints what is wrong, and exits 1 if anything is; with a folder it leaves a screenshot of each there, to be looked at.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from support import browser

ROOT = Path(__file__).parents[2]
WIDTHS = {1280: False, 400: True}  # width in CSS pixels -> dark

# Content that a reader cannot see. A box that clips is not a fault if it scrolls.
CUT = """(() => {
  const found = [];
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > wide) found.push("the page scrolls sideways");
  const kinds = ".md-content :is(table, pre, code, img, p, li, h1, h2, h3, h4), .md-header__title";
  for (const one of document.querySelectorAll(kinds)) {
    const r = one.getBoundingClientRect();
    if (!r.width) continue;
    let clip = one.parentElement, how = "visible";
    while (clip && (how = getComputedStyle(clip).overflowX) === "visible") clip = clip.parentElement;
    const say = (what) => found.push(what + ": " + one.outerHTML.slice(0, 90));
    if (how === "auto" || how === "scroll") continue;
    if (clip && r.right > clip.getBoundingClientRect().right + 0.5) say("cut");
    else if (r.right > wide + 0.5 || r.left < -0.5) say("sticks out");
    if (["hidden", "clip"].includes(getComputedStyle(one).overflowX) && one.scrollWidth > one.clientWidth + 1) say("cut inside");
  }
  return found;
})()"""
MISSING = """[...document.images].filter((one) => !(one.complete && one.naturalWidth)).map((one) => one.src)"""
# Code that is wider than its box. For the first page, which must be readable without scrolling.
SCROLLED = """[...document.querySelectorAll(".md-content pre, .md-content pre code")].filter((one) =>
  one.clientWidth && one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent.slice(0, 60))"""
# A table cell narrower than a word, which breaks long figures over lines letter by letter.
NARROW = """[...document.querySelectorAll(".md-content table td")].filter((one) => {
  const r = one.getBoundingClientRect();
  return r.width && r.height > 8 * r.width;
}).map((one) => one.textContent.slice(0, 60))"""
# For a drawing opened by itself: texts that extend beyond it or overlap one another.
CROWDED = """(() => {
  const box = document.documentElement.getBoundingClientRect();
  const texts = [...document.querySelectorAll("text")].map((one) => [one.textContent, one.getBoundingClientRect()]);
  const out = texts.filter(([, r]) => r.left < box.left - 1.5 || r.right > box.right + 1.5 || r.top < box.top - 1.5 ||
    r.bottom > box.bottom + 1.5);
  const over = texts.filter(([, a], i) => texts.some(([, b], j) => i < j &&
    a.left < b.right - 0.5 && b.left < a.right - 0.5 && a.top < b.bottom - 3 && b.top < a.bottom - 3));
  return [...out.map(([t]) => "cut: " + t), ...over.map(([t]) => "on another: " + t)];
})()"""


def build(folder: Path) -> None:
    """Build the site in `folder`. Raises RuntimeError with the output of mkdocs if that has a warning."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"mkdocs build: {done.stdout}{done.stderr}")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the folder on this machine only, and yield its address: the site's search runs in a worker, which a page opened as a
    file may not start."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def names(folder: Path) -> list[str]:
    """Return the paths of the pages of a built site."""
    return sorted(path.parent.relative_to(folder).as_posix() + "/" for path in folder.rglob("index.html"))


def faults(page: browser.Page, address: str, whole: bool = False) -> list[str]:
    """Return what is wrong with an open page; with `whole`, code that has to be scrolled is a fault too."""
    found = [*page.value(CUT)]
    found += [f"no image: {url}" for url in page.value(MISSING)]
    found += [f"narrow cell: {text}" for text in page.value(NARROW)]
    found += [f"code scrolls: {text}" for text in page.value(SCROLLED)] if whole else []
    found += [f"asks for {url}" for url in page.requests if not url.startswith((address, "blob:"))]
    return found + [f"console: {error}" for error in page.errors]


def drawing_faults(page: browser.Page) -> list[str]:
    """Return what is wrong with a drawing that is opened by itself."""
    return [*page.value(CROWDED), *page.errors]


def main() -> int:
    program = browser.find()
    if program is None:
        print("no Chromium on the PATH: make browser installs Debian's", file=sys.stderr)
        return 2
    pictures = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary, browser.Browser(program) as opened:
        site = Path(temporary)
        build(site)
        with served(site) as address:
            for name in names(site):
                with opened.open(address + name) as page:
                    for width, dark in WIDTHS.items():
                        page.resize(width, dark=dark)
                        for fault in faults(page, address, whole=name == "./" and width >= 1280):
                            print(f"{name} at {width}: {fault}")
                            wrong += 1
                        if pictures is not None:
                            page.screenshot(pictures / f"{name.strip('./').replace('/', '-') or 'index'}-{width}.png")
        for path in sorted((site / "pictures").glob("*.svg")):
            with opened.open(path, 660) as page:
                for fault in drawing_faults(page):
                    print(f"{path.name}: {fault}")
                    wrong += 1
    print(f"{wrong} faults" if wrong else "nothing is cut, crowded or missing")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
