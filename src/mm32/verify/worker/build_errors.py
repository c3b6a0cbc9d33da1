"""Why a candidate could not be built: the compiler's first error with its source line, out of hundreds of lines of output."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

CONTEXT_LINES = 4

# g++ and clang: "main.cpp:12:5: error: ..."; nvcc: "cuda.cu(12): error: ..."
COMPILER = re.compile(
    r"^(?P<file>[^\s:()][^:()\n]*)(?::(?P<line>\d+)(?::(?P<column>\d+))?|\((?P<nvcc>\d+)\)): (?:fatal )?error:?\s?"
    r"(?P<text>.*)$",
    re.MULTILINE,
)
LINKER = re.compile(r"^.*(?:undefined reference to .*|ld: cannot find .*|multiple definition of .*)$", re.MULTILINE)
TOOL = re.compile(r"^(?:nvcc|ptxas|g\+\+|c\+\+|cc1plus|nvlink|ninja)\s*(?::| )\s*(?:fatal|error)\s*:?.*$", re.MULTILINE)
ABSENT = re.compile(r"^\S*sh: (?:line )?(?:\d+: )?(\S+): (?:command )?not found$", re.MULTILINE)  # said by dash or bash
SYMBOL = re.compile(r"undefined symbol: (\S+)")
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

HINTS: tuple[tuple[str, str], ...] = (
    (r"C\+\+(?:14|17|20) or later|requires? (?:at least )?C\+\+1[47]|-std=c\+\+(?:98|11|14)",
     "torch's headers need C++17 or later: drop the -std flag from extra_cflags, or raise it"),
    (r"Python\.h: No such file", "Python's headers are missing (Debian and Ubuntu: apt install python3-dev)"),
    (r"No such file or directory", "a header is missing: check the #include and extra_include_paths"),
    (r"undefined reference|undefined symbol",
     "it is declared but defined nowhere: is its source among cpp_sources/cuda_sources, under the same signature?"),
    (r"cannot find -l", "a library is missing: check extra_ldflags"),
    (r"CUDA_HOME environment variable is not set|nvcc.*not found|No such file.*nvcc",
     "there is no CUDA toolkit here to compile with: install one, or set CUDA_HOME"),
    (r"^\S*(?:c\+\+|g\+\+|gcc|clang)\S*: not found",
     "no C++ compiler is here: install one, with Python's headers (Debian and Ubuntu: apt install g++ python3-dev)"),
    (r"Ninja is required", "install it: pip install ninja"),
    (r"no CUDA-capable device|Found no NVIDIA driver|No CUDA GPUs are available|Torch not compiled with CUDA",
     "this machine, or this build of torch, has no GPU: verify this candidate where one is"),
    (r"\bload(?:_inline)?\(\) (?:missing|takes|got)",
     "see torch.utils.cpp_extension.load_inline for its arguments"),
    (r"has not been declared|was not declared in this scope|identifier .* is undefined",
     "it is not declared where it is used: a missing #include, or a missing entry in cpp_sources"),
)  # fmt: skip

# Hints for mistakes that are not made in a build.
OTHER_HINTS: tuple[tuple[str, str], ...] = (
    (r"\.__init__\(\) (?:missing|takes|got)", "a model is made with what the reference's get_init_inputs() returns"),
    (r"\.forward\(\) (?:missing|takes|got)", "a model is called with what the reference's get_inputs() returns"),
    (r"^ModuleNotFoundError", "install it into the environment that mm32 runs in"),
    (r"^SyntaxError: .*codec can't decode", "save the script as UTF-8"),
)


@dataclass(frozen=True)
class Explained:
    """An error for a person: the message, the source lines that it points at, and what to do."""

    message: str
    context: str = ""
    hint: str = ""


def first_line(error: BaseException) -> str:
    """Return the type of `error` and the first line of its message."""
    if isinstance(error, SystemExit):
        return f"the script called sys.exit({'' if error.code is None else error.code!r})"
    lines = [line for line in str(error).splitlines() if line.strip()]
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg}" + (f" (line {error.lineno})" if error.lineno else "")
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__


def chain(error: BaseException) -> list[BaseException]:
    """`error`, what it was raised from, and so on."""
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in found:
        found.append(current)
        current = current.__cause__ or current.__context__
    return found


def hint_for(text: str) -> str:
    return next((hint for pattern, hint in HINTS if re.search(pattern, text)), "")


def other_hint(error: BaseException) -> str:
    """Return what to do about an exception that `explain` does not explain, or ""."""
    text = first_line(error)
    return next((hint for pattern, hint in OTHER_HINTS if re.search(pattern, text)), "")


def first_error(output: str) -> Explained | None:
    """Return the first error in the output of a build; None if there is none."""
    output = ANSI.sub("", output)
    found = COMPILER.search(output)
    if found:
        number = found["line"] or found["nvcc"]
        lines = output[found.end() :].lstrip("\n").split("\n")
        context = []
        for line in lines[:CONTEXT_LINES]:
            if not line.startswith((" ", "\t")) or COMPILER.match(line):
                break
            context.append(line.rstrip())
        if not any(character.isalnum() for line in context for character in line):
            context = _source(Path(found["file"]), int(number)) if number else []
        message = f"{Path(found['file']).name}:{number}: error: {found['text'].strip()}"
        return Explained(message, "\n".join(context), hint_for(found["text"]))
    for pattern in (LINKER, TOOL):
        found = pattern.search(output)
        if found:
            text = found[0].strip()
            text = text.split(": ", 1)[-1] if "ld: " in text[:40] else text
            return Explained(re.sub(r"^\S*/", "", text), "", hint_for(text))
    found = ABSENT.search(output)
    if found:
        text = f"{found[1]}: not found"
        return Explained(text, "", hint_for(text))
    return None


def _source(path: Path, number: int) -> list[str]:
    """Return the line that an error points at. It is read now, since the generated source is removed after the run."""
    try:
        return [f"  {number} | {path.read_text(errors='replace').splitlines()[number - 1].rstrip()}"]
    except (OSError, IndexError):
        return []


def demangle(symbol: str) -> str:
    tool = shutil.which("c++filt")
    if tool is None or not re.fullmatch(r"[A-Za-z_][\w.$@]*", symbol):
        return symbol
    try:
        return subprocess.run([tool, symbol], capture_output=True, text=True, timeout=5).stdout.strip() or symbol
    except (OSError, subprocess.SubprocessError):
        return symbol


def explain(error: BaseException) -> Explained | None:
    """Return what went wrong in a build, if `error` was raised by one; None for any other exception."""
    for link in chain(error):
        text = str(link)
        output = getattr(link, "output", None)
        if isinstance(output, bytes):
            text += "\n" + output.decode(errors="replace")
        if "Error building extension" in text or ("ninja" in text.lower() and "error:" in text):
            found = first_error(text)
            if found:
                return found
        symbol = SYMBOL.search(text)
        if isinstance(link, ImportError) and symbol:
            return Explained(
                f"undefined symbol when the extension is loaded: {demangle(symbol[1])}", "", hint_for(text)
            )
    text = str(error)
    hint = hint_for(text)
    building = any(
        mark in text for mark in ("load_inline", "CUDA_HOME", "Ninja is required", "Error building extension")
    )
    if hint and (building or isinstance(error, (TypeError, RuntimeError, OSError, AssertionError))):
        return (
            Explained(first_line(error), "", hint)
            if not isinstance(error, FileNotFoundError) or "nvcc" in text
            else None
        )
    return None
