"""Tables of the verdicts of mm32 verify on many candidates: KernelBench's problems, the corpus, a batch of 60, small gains."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from mm32.verify import Verdict

from .columns import Load, Row, Source, markdown

AGAINST = {
    "self": "itself, renamed: the same, neither faster nor slower",
    "compiled": "itself by torch.compile: the same",
    "zeros": "a copy that later answers zeros: not the same",
    "stale": "a copy that later answers its first output again: not the same",
}
GROUPS = {  # of the corpus, by the beginning of a file's name
    "p_": "processes, files, pages",
    "t_": "clocks, caches, streams",
    "j_": "arithmetic and semantics",
    "b_": "by the outsider",
    "o_": "by another outsider",
}


def _counted(verdicts: Iterable[str]) -> str:
    """Return how many there are of each verdict, most first, in the words of the verdict's line."""
    counts = sorted(Counter(verdicts).items(), key=lambda pair: (-pair[1], pair[0]))
    return "; ".join(f"{count} {Verdict[name].value}" for name, count in counts)


def _seconds(results: Sequence[Row]) -> str:
    """Return the median and the most seconds, without loading and compiling the candidate."""
    took = [result["seconds"] for result in results]
    return f"{statistics.median(took):.1f}, {max(took):.1f}"


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def kernelbench(load: Load, source: Source) -> str:
    """Return a table with a line for each kind of copy and level, and the problems whose copy got a verdict it may not get."""
    made = load("kernelbench")
    rows, lines = made["rows"], []
    for kind, what in AGAINST.items():
        for level in sorted({row["level"] for row in rows}):
            of = [row for row in rows if row["level"] == level and kind in row["results"]]
            if not of:
                continue
            results = [row["results"][kind] for row in of]
            missed = [row["problem"].removesuffix(".py") for row in of if row["results"][kind]["fits"] is False]
            verdicts = _counted(result["verdict"] for result in results)
            lines.append([what, str(level), str(len(of)), verdicts, _names(missed), _seconds(results)])
    absent = sum("needs" in row for row in rows)
    said = f"{len(rows)} problems drawn by seed {made['sample']['seed']}"
    said += f", {absent} of which need a module that was not installed" if absent else ""
    heads = ["against", "level", "done", "verdicts", "not as it has to be", "seconds: median, most"]
    return f"{said}.\n\n{markdown(heads, lines)}{source('kernelbench')}"


def corpus(load: Load, source: Source) -> str:
    """Return a table with a line for each group of files and one for all; below, the files with a verdict they may not get."""
    made = load("corpus")
    rows = made["rows"]

    def line(name: str, of: list[Row]) -> list[str]:
        cheats, honest = ([row for row in of if row["kind"] == kind] for kind in ("cheats", "honest"))
        passed, refused = (sum(not row["fits"] for row in kind) for kind in (cheats, honest))
        unclear = sum(row["got"] in ("INCONCLUSIVE", "SUSPECT") for row in honest)
        return [name, *map(str, (len(cheats), passed, len(honest), refused, unclear)), _seconds(of)]

    groups = [
        (f"`{start}` {what}", [row for row in rows if row["name"].rpartition("/")[2].startswith(start)])
        for start, what in GROUPS.items()
    ]
    known = {row["name"] for _, of in groups for row in of}
    groups += [("others", [row for row in rows if row["name"] not in known]), ("all", rows)]
    heads = [
        "files",
        "cheats",
        "passed",
        "honest",
        "refused",
        "honest, speed unclear",
        "seconds: median, most",
    ]
    said = "" if len(rows) == made["of"] else f"{len(rows)} of {made['of']} files were reached.\n\n"
    wrong = {
        kind: [row["name"] for row in rows if row["kind"] == kind and not row["fits"]] for kind in ("cheats", "honest")
    }
    named = f"\nPassed: {_names(sorted(wrong['cheats']))}. Refused, or without a verdict: {_names(sorted(wrong['honest']))}.\n"
    return said + markdown(heads, (line(name, of) for name, of in groups if of)) + named + source("corpus")


def batch(name: str) -> Callable[[Load, Source], str]:
    """Return the table of a batch: the run in figures, and how many candidates got each verdict."""

    def make(load: Load, source: Source) -> str:
        made = load(name)
        said, rows = made["summary"], made["rows"]
        figures = [
            ("candidates", str(said["candidates"])),
            ("cards", str(made["cards"])),
            ("not reached within its limit" if made.get("limit") else "lost", str(said["lost"])),
            ("with a verdict that they may not get", str(said["wrong"])),
            ("seconds, all included", f"{said['seconds']:.0f}"),
            ("candidates a minute", f"**{said['rate']:.1f}**"),
            ("seconds of a candidate: median, most", _seconds(rows)),
            ("verdicts", _counted(row["verdict"] for row in rows)),
        ]
        return markdown(["", ""], figures) + source(name)

    return make


def power(load: Load, source: Source) -> str:
    """Return a table with a line for each kind of copy: what it gains, and how many got which verdict."""
    made = load("power")
    rows, gain, lines = made["rows"], made["gain"], []
    for kind, what in {
        "faster": f"a pass of the reference left out: {gain:.3f} times as fast"
        if gain
        else "a pass of the reference left out",
        "identical": "the reference itself, renamed",
    }.items():
        of = [row for row in rows if row["kind"] == kind]
        verdicts = _counted(row["verdict"] for row in of)
        right = sum(row["fits"] for row in of)
        lines.append(
            [what, str(len(of)), verdicts, f"{100 * right / max(len(of), 1):.0f} %", _seconds(of) if of else "–"]
        )
    return markdown(["", "done", "verdicts", "as it has to be", "seconds: median, most"], lines) + source("power")
