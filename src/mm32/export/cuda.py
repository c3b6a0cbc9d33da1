"""Writes the kernels of a plan as one translation unit: the sources of its launches, which were written to be compiled apart,
and their headers.

A header on which constants have no effect appears once, unchanged. Each source, and each header on which they have an effect,
becomes a namespace: constants are constexpr numbers in it, and `using namespace` replaces #include. All launches share the
namespace of a header, unless their constants make its text or its numbers differ. Then there are several, with different names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mm32.cuda import compile as compiler
from mm32.plan import Constants, Launch, Plan

INCLUDE = re.compile(r'^#include "([\w./]+)"\n', re.M)
DIRECTIVE = re.compile(r"#\s*(\w+)\b(.*)")
CONSTANT = re.compile(r"MM32_([A-Z][A-Z0-9_]*)")
MACRO = re.compile(r"^#define (\w+)", re.M)  # a macro that a header defines itself
OPENING = re.compile(r"(?://.*\n)*")  # the comment that a file begins with
# Names with C linkage, which ignore namespaces.
C_NAMES = re.compile(r'^extern "C" \{\n(.*?)^\}\n|^extern "C" (?=__global__)', re.M | re.S)
ARITHMETIC = re.compile(r"(?:\d+|and|or|[=!<>]=|[-+*%<>()\s])+")
RULE = f"// {'-' * 117}\n"


@dataclass(frozen=True)
class Part:
    """A header or a source as some launches need it. Parts are equal if they are the same C++.

    `text`: the file without the branches that the constants rule out, and without its #include lines. `values`: the constants
    that the text still names. `includes`: the parts that it includes. `chosen_by`: the constants that only rule branches out.
    `decided_by`: all constants that have an effect on it or on what it includes.
    """

    name: str
    text: str
    values: Constants
    includes: tuple[Part, ...]
    chosen_by: Constants = field(compare=False)
    decided_by: Constants = field(compare=False)


def read(source: str, constants: Constants) -> Part:
    """Return the source with these constants, and what it includes.

    Raises ValueError if a file uses a constant that is not given, which the preprocessor would take as 0, or uses one in a
    directive that is not understood.
    """
    values, own = dict(constants), set[str]()
    known: dict[str, tuple[Part, ...]] = {}

    def only(names: set[str]) -> Constants:
        return tuple((name, value) for name, value in constants if name in names)

    def parts(name: str) -> tuple[Part, ...]:
        """Return what an #include of a file becomes: its part, or those of its includes if the constants leave only comments."""
        if name not in known:
            whole = (compiler.KERNEL_DIR / name).read_text()
            text = resolve(whole, values)
            includes = tuple(dict.fromkeys(part for header in INCLUDE.findall(text) for part in parts(header)))
            own.update(macro.removeprefix("MM32_") for macro in MACRO.findall(whole))
            named, left = (set(CONSTANT.findall(_code(x))) - own for x in (whole, text))
            if left - values.keys():
                raise ValueError(
                    f"{name} uses {', '.join(left - values.keys())}, which a launch of {source} does not define"
                )
            text = INCLUDE.sub("", text.replace("#pragma once\n", "")).strip("\n") + "\n"
            text = C_NAMES.sub(lambda found: found[1] or "", text)
            decided_by = named.union(*(dict(part.decided_by) for part in includes))
            part = Part(name, text, only(left), includes, only(named - left), only(decided_by))
            known[name] = (part,) if _code(text).strip() or name == source else includes
        return known[name]

    return parts(source)[0]


def _code(text: str) -> str:
    return re.sub(r"//.*", "", text)


def resolve(text: str, values: dict[str, int]) -> str:
    """Return a file's text without the branches that the constants rule out, and so without what only those include.

    Raises ValueError for a directive that asks for constants in a way that is not understood.
    """
    kept = []
    # For each enclosing #if: whether a branch was kept so far, and whether this one is; None where no constant decides.
    frames: list[tuple[bool, bool] | None] = []
    for line in text.splitlines(keepends=True):
        if directive := DIRECTIVE.match(_code(line)):
            word, condition = directive.groups()
            if word == "if" and CONSTANT.search(condition):
                holds = _holds(condition, values)
                frames.append((holds, holds))
                continue
            if word in ("if", "ifdef", "ifndef"):
                frames.append(None)
            elif word in ("elif", "else", "endif"):
                frame = frames.pop()
                if frame is not None and word != "endif":
                    holds = not frame[0] and (word == "else" or _holds(condition, values))
                    frames.append((frame[0] or holds, holds))
                elif word != "endif":
                    frames.append(None)
                if frame is not None:
                    continue
            if CONSTANT.search(condition) and word not in ("define", "undef", "pragma", "include"):
                raise ValueError(f"a directive asks for a constant in a way that is not understood: {line.strip()}")
        if all(frame is None or frame[1] for frame in frames):
            kept.append(line)
    return "".join(kept)


def _holds(condition: str, values: dict[str, int]) -> bool:
    """Return whether a condition of #if on constants alone holds. Raises ValueError for any other condition."""
    missing = set(CONSTANT.findall(condition)) - values.keys()
    numbers = CONSTANT.sub(lambda found: str(values.get(found[1])), condition)
    python = re.sub(r"!\s*(\d+)", r"(\1 == 0)", numbers).replace("&&", " and ").replace("||", " or ").strip()
    if missing or not ARITHMETIC.fullmatch(python):
        raise ValueError(f"#if{condition} is no condition on the constants {', '.join(values)}")
    return bool(eval(python))


# ---------------------------------------------------------------------------------------------------------------------


def translation_unit(plan: Plan) -> tuple[str, dict[Launch, str]]:
    """Return the plan's kernels as C++, and the name of each launch's kernel in it.

    Raises ValueError if a source cannot be written this way (`read`).
    """
    sources = {launch: read(launch.source, launch.constants) for launch in plan.launches}
    every = list(dict.fromkeys(part for source in sources.values() for part in _in_order(source)))
    spaces = _namespaces(every, set(sources.values()))
    names = [part.name for part in every]
    text = "\n".join(_written(part, spaces, names.count(part.name) == 1) for part in every)
    return text, {launch: f"{spaces[source]}::{launch.entry}" for launch, source in sources.items()}


def _in_order(part: Part) -> Iterator[Part]:
    """Yield all that a part includes, then the part."""
    for included in part.includes:
        yield from _in_order(included)
    yield part


def _namespaces(parts: list[Part], sources: set[Part]) -> dict[Part, str]:
    """Return the parts that become namespaces, with their names: simt for fma/simt.cu, simt_cuh for fma/simt.cuh."""
    forms: dict[str, list[Part]] = {}
    for part in parts:
        forms.setdefault(part.name, []).append(part)
    spaces: dict[Part, str] = {}
    for part in parts:
        alike = forms[part.name]
        if part in sources or part.values or len(alike) > 1 or any(included in spaces for included in part.includes):
            stem = Path(part.name).stem + ("" if part in sources else "_cuh")
            spaces[part] = stem if len(alike) == 1 else f"{stem}_{_difference(part, alike)}"
    return spaces


def _difference(part: Part, alike: list[Part]) -> str:
    """Return a name that tells a part from the others of its file: one constant if that suffices, preferably PRODUCTS."""
    forms, form = [dict(other.decided_by) for other in alike], dict(part.decided_by)
    different = [name for name in form if len({other.get(name) for other in forms}) > 1]
    alone = [name for name in different if len({other.get(name) for other in forms}) == len(forms)]
    names = sorted(alone, key=lambda name: name != "PRODUCTS")[:1] or different
    return "_".join(f"{name.lower()}_{form[name]}" for name in names)


def _written(part: Part, spaces: dict[Part, str], alone: bool) -> str:
    """Return a part as it appears in the exported file: its opening comment, then its code, in its namespace if it has one.
    Unless it is the only part of its file, its macros are undefined after it."""
    opening = OPENING.match(part.text)
    assert opening is not None
    code = part.text[opening.end() :].lstrip("\n")
    chosen_by = f" with {', '.join(_equations(part.chosen_by))}" if part.chosen_by else ""
    head = f"{RULE}// {part.name}{chosen_by}\n//\n{opening[0]}\n"
    space = spaces.get(part)
    if space is None:
        return head + code
    lines = [f"using namespace {spaces[included]};\n" for included in part.includes if included in spaces]
    equations = _equations(part.values)
    lines += [f"constexpr int {', '.join(equations[i : i + 5])};\n" for i in range(0, len(equations), 5)]
    macros = "" if alone else "".join(f"#undef {name}\n" for name in MACRO.findall(code))
    return f"{head}namespace {space} {{\n{''.join(lines)}\n{code}{macros}}}  // namespace {space}\n"


def _equations(constants: Constants) -> list[str]:
    return [f"MM32_{name} = {value}" for name, value in constants]
