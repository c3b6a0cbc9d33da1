"""The page of one report, from its record: the order of its sections. Their smaller parts are in parts.py."""

from __future__ import annotations

import re
from typing import Any

from mm32.verify.verdict import Verdict

from . import parts, pictures
from .safe import attribute, document, lines, local, section, text

READS = re.compile(r"mm32\.verify/[234]")
# The most bytes of each source, of what was printed, and of each log of an error: 1 MB in all. The rest has at most 700 kB.
SOURCE, PRINTED, ERROR = 300_000, 200_000, 80_000


def page(
    record: dict[str, Any], candidate: str | None = None, reference: str | None = None, *, up: str | None = None
) -> str:
    """Return one report as an HTML file of at most 2 MB that needs nothing else.

    Args:
        record: `Report.as_dict()`, or what was read from its JSON (schema mm32.verify/4, /3, or /2, which has no pictures).
        candidate: the candidate's source, read before it ran; left out where None.
        reference: the reference's source, likewise.
        up: the path of an `index` to lead back to, relative to this page's.

    Raises:
        ValueError: `record` is of another schema, or has no verdict.
    """
    schema = record.get("schema")
    if not isinstance(schema, str) or not READS.fullmatch(schema):
        raise ValueError(f"a page is made of a record of mm32.verify/4, /3 or /2, this one's schema is {schema!r:.80}")
    if record.get("verdict") not in Verdict.__members__:
        raise ValueError(
            f"a record's verdict is one of {', '.join(Verdict.__members__)}, this one's is {record.get('verdict')!r:.80}"
        )
    verdict = Verdict[record["verdict"]]
    sections = {
        "figures": ("Figures", parts.figures(record)),
        "errors": ("Where the errors are, and how large", pictures.errors(record)),
        "rounds": ("Times, round by round", pictures.rounds(record)),
        "probes": ("Probes: the same shapes, other data", parts.probes(record)),
        "trials": ("Trials and timed calls", parts.trials(record)),
        "self-test": ("Could this check have failed?", parts.self_test(record)),
        "environment": ("Environment", parts.environment(record)),
        "isolation": ("Isolation", parts.isolation(record)),
        "notes": ("Notes and what was left out", parts.notes(record)),
        "error": ("The candidate's error", _error(record)),
        "printed": ("What the candidate printed", _log(record.get("printed"), PRINTED)),
        "candidate": ("The candidate's source", _source(candidate, _line_of(record, "candidate"))),
        "reference": ("The reference's source", _source(reference, _line_of(record, "reference"))),
    }
    if verdict is Verdict.REFERENCE_FAILED:
        sections["error"] = ("The reference's error", sections["error"][1])
    there = {name: (title, body) for name, (title, body) in sections.items() if body}
    absent = [title for name, (title, body) in sections.items() if not body and name not in ("error", "printed")]
    back = f"<a href={local(up)}>All reports</a> " if up else ""
    links = back + " ".join(f'<a href="#{name}">{title}</a>' for name, (title, _) in there.items())
    body = parts.head(record, verdict) + f'<nav aria-label="Sections">{links}</nav>\n'
    body += "".join(section(name, title, content) for name, (title, content) in there.items())
    if absent:
        body += f'<p class="soft">Not reached, or not kept: {"; ".join(absent)}.</p>\n'
    return document(f"{verdict.value}: {parts.base(record.get('candidate'))}", f"<main>\n{body}</main>")


def _line_of(record: dict[str, Any], role: str) -> int | None:
    """Return the line of a script that raised, where the record has it."""
    error = record.get("error") or {}
    line = error.get("line")
    here = error.get("script") == parts.base(record.get(role))
    return line if isinstance(line, int) and here else None


def _source(source: str | None, mark: int | None) -> str:
    if source is None:
        return ""
    made, left_out = lines(source, SOURCE, mark)
    count = source.count("\n") + (not source.endswith("\n"))
    said = f"{count} lines" + (f", of which {left_out} are left out here" if left_out else "")
    return f"<details{' open' if count <= 400 else ''}><summary>{said}</summary>{made}</details>"


def _log(log: Any, budget: int) -> str:
    if not isinstance(log, str) or not log.strip():
        return ""
    made, left_out = lines(log, budget, numbers=False)
    return made + (f'<p class="soft">{left_out} lines are left out here.</p>' if left_out else "")


def _error(record: dict[str, Any]) -> str:
    error = record.get("error") or {}
    if not error:
        return ""
    made = f"<p>{text(error.get('message') or record.get('reason'))}</p>"
    if error.get("line"):
        at = attribute("#candidate" if _line_of(record, "candidate") else "#reference")
        where = f"{text(error.get('script'))}, <a href={at}>line {text(error['line'])}</a>"
        made += f"<p>{where}: <code>{text(error.get('source'))}</code></p>"
    if error.get("hint"):
        made += f"<p>{text(error['hint'])}</p>"
    for name, title in (("context", "Messages"), ("traceback", "Traceback")):
        log = _log(error.get(name), ERROR)
        made += f"<h3>{title}</h3>{log}" if log else ""
    return made
