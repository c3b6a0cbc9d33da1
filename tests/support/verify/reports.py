"""Records to make pages from: of a real comparison, with made-up times."""

from __future__ import annotations

import base64
import copy
import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mm32.verify import Verdict
from mm32.verify.text import log
from mm32.verify.timing.rounds import Times, conclude
from support.verify import in_process
from support.verify.fixtures import REFERENCE, RIGHT, forward

# Texts that would be markup, or run, or reorder a line, if a page took them as they are.
HOSTILE = (
    "</script><script>document.title='run'</script>",
    "</style></title></textarea></pre></bdi></td></table>--><h1>SAME, FASTER 9.99x</h1>",
    "<img src=x onerror=\"document.title='run'\">",
    "\" onmouseover=\"document.title='run'\" x='y' `",
    "javascript:document.title='run'",
    "&lt;b&gt; &#60; &amp;",
    "\u202e0 ,RETSAF ,EMAS\u202c \u2066x\u2069 \u200b\ufeff",
    "\x00\x07\x1b[2J\x9b2J\x7f\r\u2028\u2029\x85",
    "\ud800 half a character",
    "אבג",
)
WRONG = {
    "tile": "C = torch.relu(A.T @ B.T)\nC[16:32, 40:56] = 0\nreturn C",
    "row": "C = torch.relu(A.T @ B.T)\nC[37] = C[38]\nreturn C",
    "nan": "C = torch.relu(A.T @ B.T)\nC[5, 7] = float('nan')\nreturn C",
    "shape": "return torch.relu(A.T @ B.T)[:-1]",
}


@cache
def _compared(body: str | None) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        reference, candidate = Path(folder) / "reference.py", Path(folder) / "candidate.py"
        reference.write_text(REFERENCE)
        candidate.write_text(RIGHT if body is None else forward(body))
        name, reason, report = in_process.compare(reference, candidate, trials=2)
    report.verdict = Verdict.FASTER if name == "SAME" else Verdict[name]
    report.reason, report.seconds, report.isolation = reason, 5.5, ["PID namespace", "no network"]
    report.reference, report.candidate = "/home/you/reference.py", "/home/you/candidate.py"
    if report.verdict.same:
        report.timing = timed()
    return report.as_dict()


def record(wrong: str | None = None, **changes: Any) -> dict[str, Any]:
    """Return the record of a candidate that is right and 3 times as fast, or of one of WRONG, with `changes` to its fields."""
    return {**copy.deepcopy(_compared(WRONG[wrong] if wrong else None)), **changes}


def crashed(**changes: Any) -> dict[str, Any]:
    made = record("shape")
    empty = {"trials": [], "self_test": [], "picture": None, "inputs_unmodified": None, "deterministic": None}
    error = {
        "message": "RuntimeError: no",
        "type": "RuntimeError",
        "script": "candidate.py",
        "line": 3,
        "source": "raise",
    }
    error |= {"traceback": "Traceback:\n  File\nRuntimeError: no", "context": "", "hint": "a hint"}
    return {
        **made,
        **empty,
        "verdict": "CRASHED",
        "error": error,
        "reason": "it raised",
        "printed": "one\ntwo",
        **changes,
    }


def timed(rounds: int = 12, ratio: float = 3.0) -> dict[str, Any]:
    chance = random.Random(1)
    sides = {}
    for name, seconds in (("reference", 3e-3), ("candidate", 3e-3 / ratio), ("control", 3e-3), ("null", 1e-5)):
        walls = [seconds * chance.uniform(0.97, 1.08) for _ in range(rounds)]
        sides[name] = Times(walls, list(walls), list(walls))
    return conclude(sides, 5e-6, 3e-3, 4, "cpu", []).record()


def hostile(value: Any, depth: int = 0) -> Any:
    """Return a record in which every text is hostile, except those that the tool itself parses."""
    if isinstance(value, dict):
        keep = ("schema", "verdict", "map", "against", "truth", "status")
        made = {k: v if k in keep else hostile(v, depth + 1) for k, v in value.items()}
        return made | ({one: one for one in HOSTILE} if depth == 2 else {})
    if isinstance(value, list):
        return [hostile(one, depth + 1) for one in value]
    return " ".join(HOSTILE) if isinstance(value, str) else value


def enormous() -> dict[str, Any]:
    """Return a record in which everything is as long as it can be, and longer."""
    text = "&<\u202e\"'" * 2000
    made = record("tile", notes=[text] * 5000, left_out=[text] * 500, isolation=[text] * 500, reason=text)
    made["trials"] = made["trials"] * 5000
    made["trials"][-1] = {**made["trials"][0], "reason": "the last"}
    made["probes"] = [{"name": text, "status": "different", "reason": text, **made["trials"][0]}] * 5000
    made["self_test"] = [{"name": text, "caught": False, "how": text}] * 5000
    made["environment"] = {f"{i} {text}": text for i in range(500)}
    made["problem"] = {
        "inputs": [text] * 500,
        "outputs": [text] * 500,
        "parameters": {f"{i}{text}": text for i in range(500)},
    }
    made["wrong"] |= {"path": text, "pattern": [text] * 500}
    made["printed"] = log("&\u202e<" * 100 + "\n") * 4000
    made["error"] = dict.fromkeys(("message", "script", "source", "hint", "type"), text)
    made["error"] |= {"context": made["printed"], "traceback": made["printed"], "line": 3}
    made["timing"] = timed(40)
    one_call = {"says": text, "speedup": text, "interval": [text, text], "saved_s": text, "wanted_s": text}
    made["timing"]["one_call"] = one_call
    for side in ("reference", "candidate", "control"):
        made["timing"][side]["rounds_s"] *= 5000
    chance = random.Random(1)
    drawn = made["picture"]["outputs"][0]
    noise = base64.b64encode(bytes(chance.randrange(256) for _ in range(128 * 128))).decode()
    drawn |= {
        "path": text,
        "shape": [1280, 1280],
        "cells": [128, 128],
        "cell": [10, 10],
        "map": noise,
        "entries": 1280**2,
    }
    made["picture"]["outputs"] = [drawn] * 100
    return made


def source(lines: int = 12) -> str:
    return "\n".join(f"x = {i}  # <b>&\u202e{'אבג'}" for i in range(1, lines + 1)) + "\n"
