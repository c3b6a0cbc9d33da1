"""The sections of one report's page that are pictures: where the errors are and how large, and the rounds' times."""

from __future__ import annotations

import math
from typing import Any

from mm32.verify.judging.picture import OUTPUTS
from mm32.verify.verdict import Verdict

from . import charts, heat
from .parts import a_call, baselines, seconds, than
from .safe import figure, number, table, text


def errors(record: dict[str, Any]) -> str:
    """For each tensor of the output that was drawn: its map and its distribution, side by side."""
    drawn, made = record.get("picture") or {}, ""
    for output in (drawn.get("outputs") or [])[:OUTPUTS]:
        shape = "(" + ", ".join(map(str, output.get("shape") or [])) + ")"
        name = f"<h3>{text(output.get('path'), 120)}, {text(shape, 120)} {text(output.get('dtype'), 40)}</h3>"
        made += f'{name}<div class="charts">{_map(output)}{_distribution(output)}</div>'
    if not made:
        return ""
    more = int(number(drawn.get("left_out", 0)))
    which = "the first output that differs" if not drawn.get("same") else "the first output"
    return f"<p>Of {text(drawn.get('of'), 120)}, {which}.{f' {more} more tensors of it are not drawn.' if more else ''}</p>{made}"


def _map(output: dict[str, Any]) -> str:
    try:
        if "why_not" in output:
            raise ValueError(output["why_not"])
        found = heat.Map(output)
    except ValueError as error:
        return f"<p>Not drawn: {text(error, 200)}.</p>"
    said = heat.says(output, found)
    return (
        f"<figure>{heat.drawing(found, said)}{heat.legend(found)}"
        f"<figcaption>{said} A cell is {found.cell()}. {_against(output)}</figcaption></figure>"
    )


def _against(output: dict[str, Any]) -> str:
    truth = "the float64 result" if output.get("truth") == "float64" else "the reference's own result"
    return {
        "componentwise": f"The error is that against {truth}, the bound the entry's own, {figure(output.get('bound'))} units.",
        "normwise": f"Only the whole is beyond its bound: an entry's error against {truth} is shown beside "
        f"{figure(output.get('bound'))} of the result's root mean square.",
        "relative": f"The bound is a relative error of {figure(output.get('bound'))}, against the reference's own result.",
        "equality": "Every entry has to be the reference's.",
    }.get(str(output.get("against")), "")


def _distribution(output: dict[str, Any]) -> str:
    bins = output.get("histogram")
    if not bins or output.get("against") == "equality":
        return ""
    mine, own = bins["candidate"], bins.get("reference")
    exact = (int(number(mine["exact"])), int(number(own["exact"])) if own else 0)
    counts = [[int(number(n)) for n in one["bins"][:200]] for one in (mine, own) if one]
    odd = int(number(output.get("odd", 0)))
    chart = charts.histogram(int(bins["lowest"]), counts[0], counts[1] if own else None, exact, odd)
    parts = [
        ("candidate", "candidate"),
        *([("over", "beyond the bound")] if any(counts[0][1 - int(bins["lowest"]) :]) else []),
    ]
    key = charts.key(*parts, *([("reference", "reference's own (outline)")] if own else []))
    return (
        f"<figure>{key}{chart}<figcaption>Entries by their error over what is allowed there. Both axes are logarithmic."
        "</figcaption></figure>"
    )


# ------------------------------------------------------------------------------------------------------ times


def rounds(record: dict[str, Any]) -> str:
    t = record.get("timing")
    if not t:
        return ""
    sides = {name: [number(v) for v in t[name]["rounds_s"]] for name in ("reference", "control", "candidate")}
    count = max(map(len, sides.values()))
    step = math.ceil(count / charts.MOST_ROUNDS) or 1
    shown = {name: values[::step] for name, values in sides.items()}
    over = [a / b if b > 0 else math.nan for a, b in zip(shown["reference"], shown["candidate"], strict=False)]
    low, high = (number(v) for v in t["interval"])
    key = charts.key(("reference", "reference"), ("control", "reference, a second process"), ("candidate", "candidate"))
    ratio = charts.ratios(over, low, high, number(t["speedup"]), number(t["margin"]))
    rows = [
        [label, seconds(a_call(t[name])), f"± {number(t[name]['spread']):.1%}", seconds(t[name]["wall_s"])]
        for name, label in (
            ("reference", "reference"),
            ("candidate", "candidate"),
            ("control", "reference, second process"),
        )
    ]
    rows.append(["no model at all", "", "", seconds(t["null_s"])])
    cpu = str((record.get("environment") or {}).get("device", "cpu")).startswith("cpu")
    sampled = f" Of {count} rounds every {step}th is drawn." if step > 1 else ""
    groups = t.get("groups") or []
    if groups:
        found = ", ".join(figure(group["speedup"]) for group in groups)
        sampled += (
            f" These are the first processes'. The interval is of {len(groups)} groups of processes, all but the first of them "
            f"fresh, with the ratios {found}."
        )
    alone = t.get("one_call")
    if alone:
        sampled += (
            f" In windows of one call it is {figure(alone['speedup'])}× as fast, {figure(alone['interval'][0])} to "
            f"{figure(alone['interval'][1])}, and saves {seconds(alone['saved_s'])} a call, where {seconds(alone['wanted_s'])} "
            f"would bear it out: {text(alone['says'], 20)}."
        )
    key_ratio = charts.key(
        ("candidate", "a round"),
        ("band", f"interval {figure(low)} to {figure(high)}"),
        ("margin", f"margin, a factor of {figure(t['margin'])}"),
    )
    return (
        f"<p>{'CPU times: no GPU here. ' if cpu else ''}Net times of one call, by this tool's clock; "
        f"{text(t['calls_a_round'], 9)} "
        f'calls a round, every one on data of its own.{sampled}</p><div class="charts">'
        f"<figure><h3>A call's time</h3>{key}{charts.times(shown)}</figure>"
        f"<figure><h3>Reference over candidate</h3>{key_ratio}{ratio}</figure></div>"
        + table(["side", "a call, net", "spread", "whole window"], rows, "snnn")
        + _baselines(record)
    )


def _baselines(record: dict[str, Any]) -> str:
    """A table of the speedups over other ways of running the reference."""
    rows = []
    for name, t in baselines(record).items():
        if "failed" in t:
            rows.append([than(name), "–", "", f"not timed: {text(t['failed'], 400)}"])
            continue
        low, high = t["interval"]
        verdict = Verdict.__members__.get(str(t.get("verdict")))
        said = [verdict.value.removeprefix("SAME, ")] if verdict else []
        said += [text(t["note"], 400)] if t.get("note") else []
        rows.append([than(name), f"{figure(t['speedup'])}×", f"{figure(low)} to {figure(high)}", ": ".join(said)])
    return table(["against", "speedup", "interval", "result"], rows, "snnw") if rows else ""
