"""Proof of a claim about a kernel: a reference script against a candidate script. Same outputs? Faster?

The tool's own process is the trusted side: it decides, and runs nothing of a script. Two processes run the scripts, the
reference's (reference.py) and the candidate's (worker/), which can lie. Of both:

    entry, session, stop   the public call, and the stages of a verification
    compare, probing       the stages before timing: trials and self-test; probes
    process, channel, wire a script's process, the requests to it, and the format of the messages
    launch, forkserver     workers forked from a process that has imported torch
    supervisor, sandbox    the process above a worker; what the worker may see and do
    guard                  whether somebody meddled with it all
    truth, exact, rounding what is right: float64 results, and how far honest rounding leads from them
    draws, mode            random numbers, recorded and given again; operators as they are seen
    oracle, probes         the product that a model is, and data made for it
    variations             other data for any model
    isolating, few_terms   data on which sums have few terms, and what honest rounding may do on these
    judge, pieces, selftest   same or different, piece by piece, and whether that check could have failed
    diagnosis              what is wrong with an output
    timed, timing, sequential   faster or not: which processes, their rounds, and when it is clear
    window, data, memory   timed calls: the tool's clock, fresh inputs, memory that two processes map
    device_lock, places    measuring alone; how many verifications run at once
    picture                where an output is off and by how much, small enough to keep
    batch/                 many candidates, on many cards and machines
    verdict, report, page, html, text   the outcome, for a machine and for a person

The names below are imported when they are first used: a worker must not load the trusted side, and `import mm32` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import html
    from .batch.reward import NoReward, Reward
    from .batch.run import Reports, verify_many
    from .batch.worker import work
    from .entry import verify
    from .report import Report
    from .verdict import Verdict

__all__ = ["NoReward", "Report", "Reports", "Reward", "Verdict", "html", "verify", "verify_many", "work"]

_MODULES = {
    "NoReward": "batch.reward",
    "Report": "report",
    "Reports": "batch.run",
    "Reward": "batch.reward",
    "Verdict": "verdict",
    "verify": "entry",
    "verify_many": "batch.run",
    "work": "batch.worker",
}


def __getattr__(name: str) -> object:
    if name == "html":
        return import_module(".html", __name__)
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value
