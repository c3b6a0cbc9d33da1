"""The sections of one report's page, functions of the record; each returns "" where there is nothing to show."""

from __future__ import annotations

import math
from typing import Any

from mm32.verify.text import in_units
from mm32.verify.verdict import BASELINE_NAMES, OWN_BITS, Verdict, closeness_of

from . import charts
from .safe import figure, number, some, table, text

GOOD = {Verdict.FASTER: "good", Verdict.SLOWER: "middling", Verdict.INCONCLUSIVE: "middling", Verdict.SUSPECT: "bad"}
ROWS = 60  # the most rows of a table
WORDS = 400  # the most characters of a text in a table
NAMES = 40  # the most names in a list, of inputs or baselines for example
# How the reference is run, by a record's "baseline" and the names of its "baselines".
RUN = {"eager": "in eager torch", "compile": "by torch.compile, torch", "tf32": "in TF32, torch"}
KINDS = ("normwise", "componentwise")


def base(path: object) -> str:
    """A script's name without its folders."""
    return str(path).rpartition("/")[2]


def seconds(value: object) -> str:
    return in_units(number(value)).replace("-", "−") if value is not None else "–"


def closeness(judged: dict[str, Any]) -> float:
    """Return the larger ratio of the two errors to their bounds; 1 is the bound. Where no error was measured: inf if the output
    differs, NaN otherwise."""
    if not judged.get("candidate") or not judged.get("bound"):
        return math.nan if judged.get("same", True) else math.inf
    return closeness_of([(number(judged["candidate"][kind]), number(judged["bound"][kind])) for kind in KINDS])


def worst(record: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Return, with its name, the first measured output that differs, or else the one closest to its bound."""
    measured = [(name, judged) for name, judged in judgements(record) if judged.get("candidate")]
    wrong = next((one for one in measured if not one[1].get("same")), None)
    return wrong or max(
        measured, key=lambda one: closeness(one[1]) if closeness(one[1]) == closeness(one[1]) else -1.0, default=None
    )


def judgements(record: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return all judged outputs by name, in the order in which they were judged."""
    found = [(f"trial {i + 1}", one) for i, one in enumerate(record.get("trials") or [])]
    found += [(f"probe {one.get('name')}", one) for one in record.get("probes") or [] if one.get("status") != "skipped"]
    return found + [(f"timed call, {one.get('why')}", one) for one in record.get("timed_outputs") or []]


# ------------------------------------------------------------------------------------------------------ the verdict


def machine(record: dict[str, Any]) -> str:
    e = record.get("environment") or {}
    return str(e.get("card") or e.get("cpu") or "an unknown machine")


def head(record: dict[str, Any], verdict: Verdict) -> str:
    """The verdict with its reason, and what it was compared with."""
    timing, against = record.get("timing"), _against(record)
    reason = text(record["reason"]) if record.get("reason") else ""
    if verdict is Verdict.DIFFERENT:
        said = f" from {against}"
    elif not verdict.same:
        said = f" beside {against}"
    elif timing and verdict is not Verdict.SUSPECT:
        factors = [f", {figure(t['speedup'])}× {than(name)}" for name, t in baselines(record).items() if "speedup" in t]
        said = f" {figure(timing['speedup'])}× as fast as {against}{''.join(factors)}"
    else:
        said = f" as {against}"
    late = record.get("left_out") or []
    if verdict.same and late:
        reason += ("; " if reason else "") + f"left out: {text(', '.join(map(str, late)))}"
    kind = GOOD.get(verdict, "bad")
    rows = [
        ("Candidate", text(record.get("candidate"))),
        ("Reference", text(record.get("reference"))),
        (
            "Run",
            f"seed {text(record.get('seed'), 40)}, {number(record.get('seconds')):.1f} s in all, "
            f"exit code {text(record.get('exit_code'), 10)}",
        ),
    ]
    facts = "".join(
        f"<dt>{name}</dt><dd>{value}</dd>" for name, value in [*rows, *_problem(record.get("problem") or {})]
    )
    why = f": <small>{reason}</small>" if reason else ""
    return f'<h1><strong class="{kind}">{verdict.value}</strong>{said}{why}</h1>\n<dl>{facts}</dl>\n{_wrong(record)}'


def _against(record: dict[str, Any]) -> str:
    """The reference, how it was run, and on what."""
    torch = (record.get("environment") or {}).get("torch")
    how = RUN.get(str(record.get("baseline")), "in torch")
    name = text(base(record.get("reference")), 200)
    return f"{name} (its class Model {how} {text(torch, 60)}, {text(machine(record), 120)})" if torch else name


def baselines(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return other ways of running the reference that the candidate was timed against: each as "timing", or with "failed"."""
    return dict(list((record.get("baselines") or {}).items())[:NAMES])


def than(name: str) -> str:
    return BASELINE_NAMES.get(name) or text(name, 60)


def _problem(p: dict[str, Any]) -> list[tuple[str, str]]:
    """What was computed: names and markup."""
    rows = []
    c = p.get("contraction")
    if c:
        batch = f"batch {c['batch']}, " if number(c.get("batch", 1)) > 1 else ""
        extra = ("+ bias" if c.get("bias") else "", str(c.get("activation") or ""))
        said = ", ".join(
            part for part in (f"{c.get('op')}, {batch}M={c.get('m')} K={c.get('k')} N={c.get('n')}", *extra) if part
        )
        rows.append(("Problem", text(said)))
    for name, values in (
        ("Inputs", list(p.get("inputs") or [])),
        ("Parameters", [f"{key} {value}" for key, value in (p.get("parameters") or {}).items()]),
        ("Outputs", list(p.get("outputs") or [])),
    ):
        shown, more = some(values, NAMES)
        if shown:
            rows.append((name, ", ".join(text(one, 120) for one in shown) + (f". {more}" if more else "")))
    return rows


def _wrong(record: dict[str, Any]) -> str:
    """What the wrong entries of the first output that differs have in common."""
    w = record.get("wrong") or {}
    if not w:
        return ""
    share = number(w["wrong"]) / max(1.0, number(w["entries"]))
    made = f"<p>{text(w['path'], 120)}: {text(w['wrong'], 30)} of {text(w['entries'], 30)} entries are wrong ({share:.2%}).</p>"
    pattern, _ = some(w.get("pattern") or [], 12)
    if pattern:
        made += f"<ul>{''.join(f'<li>{text(one)}</li>' for one in pattern)}</ul>"
    rows = []
    for name in ("first", "worst"):
        one = w[name]
        index = "(" + ", ".join(map(str, one["index"])) + ")"
        rows.append([f"the {name}", text(index, 120), figure(one["got"], 9), figure(one["expected"], 9)])
    return made + table(["wrong entry", "index", "got", "expected"], rows, "stnn")


# ------------------------------------------------------------------------------------------------------ figures


def a_call(side: dict[str, Any]) -> object:
    """Return the net seconds of a call, by the faster half of the windows; in older records, the windows' median."""
    return side.get("call_s", side.get("median_s"))


def figures(record: dict[str, Any]) -> str:
    timing, closest = record.get("timing"), worst(record)
    cards = []
    if timing:
        low, high = timing["interval"]
        candidate, reference = timing["candidate"], timing["reference"]
        groups = timing.get("groups") or []
        cards += [
            (
                f"{figure(timing['speedup'])}×",
                f"as fast as the reference, net; {number(timing['coverage']):.1%} interval {figure(low)} to {figure(high)}, "
                + (f"{len(groups)} groups of processes" if groups else f"{text(timing['rounds'], 9)} rounds"),
            ),
            (
                seconds(a_call(candidate)),
                f"a call of the candidate ± {number(candidate['spread']):.0%}; the reference {seconds(a_call(reference))} "
                f"± {number(reference['spread']):.0%}",
            ),
            (
                f"{figure(timing['wall_speedup'])}×",
                f"in whole windows: {seconds(candidate['wall_s'])} beside {seconds(reference['wall_s'])}; "
                f"{seconds(timing['null_s'])} without a model",
            ),
        ]
    made = ""
    if closest:
        name, judged = closest
        rows = []
        for kind in KINDS:
            mine, own, bound = (number(judged[who][kind]) for who in ("candidate", "reference", "bound"))
            share = closeness_of([(mine, bound)])
            said = _of_bound(share)
            rows.append([kind, figure(mine), figure(own), figure(bound), f"{charts.bar(share, said)} {said}"])
        which = (
            "the first that differs" if not judged.get("same") else "of all outputs judged, the closest to its bound"
        )
        made = table(
            ["error", "candidate", "reference's own", "bound", "share of the bound"],
            rows,
            "snnns",
            f"{text(name, 120)}: {which}",
        )
        made += _explained(record)
    precision = record.get("precision")
    if precision:
        own = precision.get("own")
        on = f" on probes' data; {number(own):.0f} on its own" if own is not None and number(own) < OWN_BITS else ""
        cards.append(
            (f"{number(precision['bits']):.0f} bits", f"of {text(precision['of'], 9)} that its arithmetic carries{on}")
        )
    shown = "".join(f"<div><b>{value}</b><span>{says}</span></div>" for value, says in cards)
    return (f'<div class="cards">{shown}</div>' if shown else "") + made


def _of_bound(share: float) -> str:
    if not math.isfinite(share):
        return "not a number" if share != share else "infinitely many times the bound"
    return f"{share:.1%} of it" if share <= 1 else f"{figure(share)} times it"


def _explained(record: dict[str, Any]) -> str:
    c = (record.get("problem") or {}).get("contraction")
    unit = "u (|C64| + rms C64)" if not c else "u (|A||B| + |bias|)" if c.get("bias") else "u |A||B|"
    return (
        '<p class="soft">Against the reference in float64, C64. normwise: ‖C − C64‖ / ‖C64‖, the error of the whole output; '
        f"componentwise: the worst entry, max |C − C64| in units of {unit}. Of probes that ask for equal entries: "
        "the relative error.</p>"
    )


# ------------------------------------------------------------------------------------------------------ tables


def probes(record: dict[str, Any]) -> str:
    shown, more = some(record.get("probes") or [], ROWS)
    rows = []
    for p in shown:
        status = str(p.get("status"))
        said = p.get("asks") if status == "same" else p.get("reason")
        rows.append([text(p.get("name"), 60), _status(status), text(said, WORDS), *_errors(p)])
    return _table(["probe", "result", "what it asks, or why", *_ERRORS], rows, more)


def trials(record: dict[str, Any]) -> str:
    shown, more = some(list(enumerate([*(record.get("trials") or []), *(record.get("timed_outputs") or [])])), ROWS)
    rows = []
    for i, t in shown:
        timed = "why" in t
        name = f"timed call, {text(t['why'], 60)}" if timed else f"trial {i + 1}, seed {text(t.get('seed'), 40)}"
        said = text(t["reason"], WORDS) if t.get("reason") else "fresh data" if timed else text(t.get("data"), 60)
        rows.append([name, _status("same" if t.get("same") else "different"), said, *_errors(t)])
    made = _table(["output", "result", "data, or why", *_ERRORS], rows, more)
    facts = []
    unmodified, bits = record.get("inputs_unmodified"), record.get("deterministic")
    if unmodified is not None:
        facts.append(
            f"inputs: {'not modified' if unmodified else '<strong class=bad>MODIFIED by the candidate</strong>'}"
        )
    if bits is not None:
        facts.append(f"two runs on the same inputs: {'the same bits' if bits else 'different bits'}")
    if made and record.get("parameters_by") == "seed":
        facts.append("parameters: from the same seed, since names or shapes differ")
    return made + (f"<p>{'; '.join(facts).capitalize()}.</p>" if facts else "")


_ERRORS = ("normwise", "bound", "componentwise", "bound")


def _errors(judged: dict[str, Any]) -> list[str]:
    if not judged.get("candidate"):
        return ["", "", "", ""]
    return [figure(judged[who][kind]) for kind in KINDS for who in ("candidate", "bound")]


def _status(status: str) -> str:
    kind = {"same": "good", "skipped": "soft"}.get(status, "bad")
    return f'<span class="{kind}">{text(status if status in ("same", "skipped") else "DIFFERENT", 20)}</span>'


def _table(names: list[str], rows: list[list[str]], more: str) -> str:
    if not rows:
        return ""
    return table(names, rows, "tswnnnn") + (f'<p class="soft">{more}</p>' if more else "")


def self_test(record: dict[str, Any]) -> str:
    shown, more = some(record.get("self_test") or [], ROWS)
    if not shown:
        return ""
    rows = []
    for case in shown:
        own, good = str(case.get("name", "")).startswith("the reference's own"), bool(case.get("caught"))
        said = ("passes" if good else "REJECTED") if own else ("caught" if good else "NOT CAUGHT")
        rows.append(
            [
                text(case.get("name"), 120),
                f'<span class="{"good" if good else "bad"}">{said}</span>',
                text(case.get("how"), WORDS),
            ]
        )
    return (
        "<p>Wrong outputs, made on purpose and given to the same judge, which has to reject each.</p>"
        + table(["wrong output", "result", "how"], rows, "tsw")
        + (f'<p class="soft">{more}</p>' if more else "")
    )


def environment(record: dict[str, Any]) -> str:
    shown, more = some(list((record.get("environment") or {}).items()), NAMES)
    if not shown:
        return ""
    rows = "".join(
        f"<dt>{text(str(name).replace('_', ' '), 60)}</dt><dd>{text('none' if value is None else value, 200)}</dd>"
        for name, value in shown
    )
    return f"<dl>{rows}</dl>" + (f'<p class="soft">{more}</p>' if more else "")


def isolation(record: dict[str, Any]) -> str:
    if not record.get("environment"):
        return ""
    shown, _ = some(record.get("isolation") or [], NAMES)
    if not shown:
        return "<p>Nothing: the candidate ran as you, with your rights.</p>"
    return f"<p>The candidate was confined by: {', '.join(text(one, 120) for one in shown)}.</p>"


def notes(record: dict[str, Any]) -> str:
    shown, more = some([*(record.get("notes") or [])], ROWS)
    late, _ = some(record.get("left_out") or [], ROWS)
    made = "".join(f"<li>{text(one)}</li>" for one in shown) + (f"<li>{more}</li>" if more else "")
    made += "".join(f"<li>left out: {text(one, 200)}</li>" for one in late)
    return f"<ul>{made}</ul>" if made else "<p>None; nothing was left out.</p>" if record.get("trials") else ""
